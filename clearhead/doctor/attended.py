"""What each attention of a pass worked on: its queries, keys and values, to be compared between two passes.

A cache that gives other outputs than the full pass goes wrong somewhere first: in what it keeps (keys and values that
are missing, doubled or out of order), in where it thinks it is (queries or keys at other positions), or in the mask.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.doctor.watch import Seen

CLOSE = 1e-6


@dataclass(frozen=True)
class Attended:
    """One attention: queries (N, S·heads that share keys, d), keys and values (N, T, d); N counts rows and heads."""

    query: Tensor
    key: Tensor
    value: Tensor


def attended(seen: Seen, queries: int, other: int) -> list[Attended]:
    """Every attention with so many queries, in order; those over `other` keys (a source) are left out."""
    calls = [call for call in seen.fused if call.query.size(-2) == queries and call.key.size(-2) != other]
    found = [Attended(*(x.flatten(0, -3) for x in (call.query, call.key, call.value))) for call in calls]
    for softmax in seen.softmaxes:
        before = [p for p in seen.products if p.order < softmax.order and p.out.numel() == softmax.scores.numel()]
        after = [p for p in seen.products if p.order > softmax.order]
        if not before or not after:
            continue
        query, key = before[-1].left, before[-1].right.transpose(-2, -1)
        keys = softmax.scores.size(softmax.dim)
        if key.size(-2) != keys:
            query, key = key, query
        value = after[0].right if after[0].right.size(-2) == keys else after[0].left.transpose(-2, -1)
        # query heads that share their keys may lie beside the queries
        if query.size(-2) % queries == 0 and keys != other and key.size(-2) == value.size(-2) == keys:
            found.append(Attended(query, key, value))
    return found


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and float((a - b).abs().max()) <= CLOSE * max(1.0, float(a.abs().max()))


def same_query(full: Tensor, step: Tensor) -> bool:
    """Is the single query of a step the last one of the full pass? Several heads may lie beside it, in either order."""
    heads = step.size(-2)
    grouped = full.unflatten(-2, (heads, -1))[..., -1, :], full.unflatten(-2, (-1, heads))[..., -1, :, :]
    return any(same(last, step) for last in grouped)


def kept(full: Tensor, cached: Tensor) -> str:
    """How the keys or values of a cache compare with those of the full pass."""
    if cached.size(-2) != full.size(-2):
        return "fewer" if cached.size(-2) < full.size(-2) else "more"
    if same(full, cached):
        return "same"
    if full.shape != cached.shape:
        return "other"
    near = torch.cdist(cached.double(), full.double()).amin(dim=-1)
    return "order" if float(near.max()) <= CLOSE * max(1.0, float(full.abs().max())) else "other"


def first_difference(full: list[Attended], step: list[Attended]) -> dict[str, str | int | bool]:
    """The first attention of the last step that works on something else than in the full pass, and on what."""
    for layer, (a, b) in enumerate(zip(full, step, strict=False)):
        keys, values, query = kept(a.key, b.key), kept(a.value, b.value), same_query(a.query, b.query)
        if (keys, values, query) != ("same", "same", True):
            # what differs in a later layer only because its input does comes from the mask of the one before
            return {"keys": keys, "values": values, "query": query, "first": layer == 0}
    return {"keys": "same", "values": "same", "query": True, "first": False} if full and step else {}
