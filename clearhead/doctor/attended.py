"""What each attention of a pass worked on: its queries, keys and values, to be compared between two passes.

Of the keys only those count that the last query looks at: a cache may have empty places, or keep its keys in a ring.
A cache that gives other outputs than the full pass goes wrong somewhere first: in what it keeps (keys and values that
are missing, doubled or out of order), in where it thinks it is (queries or keys at other positions), or in the mask.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.doctor.watch import Fused, Seen, Softmax

CLOSE = 1e-6


@dataclass(frozen=True)
class Attended:
    """One attention: queries (N, S·heads that share keys, d), keys and values (N, T, d); N counts rows and heads."""

    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor  # (N·heads, T), of the last query

    @property
    def seen(self) -> Tensor:
        """(T,), the keys that the last query gives any weight, in any row and head."""
        return self.weights.ne(0).any(dim=0)

    @property
    def keys(self) -> Tensor:
        return self.key[..., self.seen, :]

    @property
    def values(self) -> Tensor:
        return self.value[..., self.seen, :]


def last_weights(softmax: Softmax, queries: int) -> Tensor:
    weights = softmax.weights.movedim(softmax.dim, -1)
    axes = [axis for axis in range(weights.dim() - 1) if weights.size(axis) == queries]
    if axes and queries > 1:
        weights = weights.select(axes[-1], -1)
    return weights.flatten(0, -2)


def fused_weights(call: Fused) -> Tensor:
    scores, visible = call.scores().flatten(0, -3), call.visible()
    # a mask may be the same for all heads, or for all rows and heads
    hidden = ~visible.repeat_interleave(len(scores) // len(visible), dim=0)
    return scores.masked_fill(hidden, -math.inf).softmax(dim=-1).nan_to_num()[:, -1]


def attended(seen: Seen, queries: int, other: int) -> list[Attended]:
    """Every attention with so many queries, in order; those over `other` keys (a source) are left out."""
    calls = [call for call in seen.fused if call.query.size(-2) == queries and call.key.size(-2) != other]
    found = [
        Attended(call.query.flatten(0, -3), call.key.flatten(0, -3), call.value.flatten(0, -3), fused_weights(call))
        for call in calls
    ]
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
            found.append(Attended(query, key, value, last_weights(softmax, queries)))
    return found


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and float((a - b).abs().max()) <= CLOSE * max(1.0, float(a.abs().max()))


def same_query(full: Tensor, step: Tensor, length: int, fed: int) -> bool:
    """Is the last query of a step the last one of the full pass? Several heads may lie beside it, in either order."""
    heads = full.size(-2) // length
    if heads * length != full.size(-2) or heads * fed != step.size(-2):
        return False

    def last(x: Tensor, before: bool) -> Tensor:
        return x.unflatten(-2, (heads, -1))[..., -1, :] if before else x.unflatten(-2, (-1, heads))[..., -1, :, :]

    return any(same(last(full, before), last(step, before)) for before in (True, False))


def kept(full: Tensor, cached: Tensor) -> str:
    """How the keys or values of a cache compare with those of the full pass."""
    if cached.size(-2) != full.size(-2):
        return "fewer" if cached.size(-2) < full.size(-2) else "more"
    if same(full, cached):
        return "same"
    return "order" if moved_about(full, cached) else "other"


def moved_about(full: Tensor, cached: Tensor) -> bool:
    """The same vectors in another order?"""
    if full.shape != cached.shape:
        return False
    near = torch.cdist(cached.double(), full.double()).amin(dim=-1)
    return float(near.max()) <= CLOSE * max(1.0, float(full.abs().max()))


def alike(full: Attended, cached: Attended) -> bool:
    """Are the keys weighed alike, in whatever order they are kept?"""
    some, others = (x.weights[:, x.seen].sort(dim=-1).values for x in (full, cached))
    return same(some, others)


def there(full: Attended, cached: Attended) -> bool:
    """Is everything that the last query should look at kept somewhere in the cache?"""
    wanted, kept = torch.cat([full.keys, full.values], dim=-1), torch.cat([cached.key, cached.value], dim=-1)
    if wanted.shape[:-2] != kept.shape[:-2] or wanted.size(-1) != kept.size(-1):
        return False
    near = torch.cdist(wanted.double(), kept.double()).amin(dim=-1)
    return float(near.max()) <= CLOSE * max(1.0, float(wanted.abs().max()))


def first_difference(full: list[Attended], step: list[Attended], length: int, fed: int) -> dict[str, str | int | bool]:
    """The first attention of the last step that works on something else than in the full pass, and on what."""
    order = False
    for layer, (a, b) in enumerate(zip(full, step, strict=False)):
        keys, values = kept(a.keys, b.keys), kept(a.values, b.values)
        if (keys, values) != ("same", "same") and moved_about(
            torch.cat([a.keys, a.values], dim=-1), torch.cat([b.keys, b.values], dim=-1)
        ):
            keys, values, order = "same", "same", True  # keys with their values: attention does not mind
        hidden = "fewer" in (keys, values) and there(a, b)
        if hidden:
            keys, values = "same", "same"  # they were kept: it is a mask that hides them
        query = same_query(a.query, b.query, length, fed)
        weighed = alike(a, b)
        if not weighed or (keys, values, query) != ("same", "same", True):
            # what differs in a later layer only because its input does comes from the mask of the one before
            more = int(b.seen.sum()) - int(a.seen.sum())
            seen = {"query": query, "first": layer == 0, "order": order, "more": more, "weighed": weighed}
            return {"keys": keys, "values": values, **seen}
    return {"keys": "same", "values": "same", "query": True, "first": False, "order": order} if full and step else {}
