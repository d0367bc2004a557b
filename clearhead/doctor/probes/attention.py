"""Attention weights sum to one over the keys they mix.

The softmax is watched, and the product that uses its result: whatever layout the code prefers, the axis that the
product sums over is the axis that must have been normalised. Which scores a mask left standing is noted as well.
"""

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, View
from clearhead.doctor.watch import Product, Seen, Softmax, Watch


def user(softmax: Softmax, products: list[Product]) -> Tensor | None:
    """The weights as the next product takes them, their keys in the last axis; None if no product does."""
    for product in products:
        if product.order < softmax.order:
            continue
        if product.left.numel() == softmax.weights.numel():
            return product.left
        if product.right.numel() == softmax.weights.numel():
            return product.right.transpose(-2, -1)
        return None
    return None


def off_one(sums: Tensor) -> float:
    """How far the sums are from one; a query that may look at nothing sums to zero."""
    return float(torch.minimum((sums - 1).abs(), sums.abs()).max())


def normalised_axis(softmax: Softmax, weights: Tensor) -> int | None:
    """The axis of the scores, counted from the end, that the weights sum to one over instead; None if there is none."""
    if weights.numel() != softmax.scores.numel() or weights.shape[-2:] != softmax.scores.shape[-2:]:
        return None
    full = weights.double().reshape(softmax.scores.shape)
    axes = range(-2, -full.dim() - 1, -1)
    return next((axis for axis in axes if full.size(axis) > 1 and off_one(full.sum(dim=axis)) < 1e-2), None)


def judge(softmax: Softmax, weights: Tensor) -> Finding | None:
    sums = weights.double().sum(dim=-1)
    if off_one(sums) < 1e-2:
        return None
    axis = normalised_axis(softmax, weights)
    shape = tuple(softmax.scores.shape)
    instead = "" if axis is None else f", but do over axis {axis} of the scores {shape}"
    total = show(float(sums.flatten()[0]))
    message = f"the weights that mix the values sum to {total}, not to one, over the keys{instead}"
    # weights that sum to one nowhere were changed after the softmax, which may be meant
    severity = WARNING if axis is None else ERROR
    evidence = {"axis": -1 if axis is None else axis, "after": axis is None}
    return Finding("attention.unnormalised", severity, message, evidence, (softmax.where,))


def changed_weights(seen: Seen) -> list[Finding]:
    """Softmaxes over the keys whose result was changed before it mixed the values."""
    used = [(softmax, user(softmax, seen.products)) for softmax in seen.softmaxes]
    judged = [judge(softmax, weights) for softmax, weights in used if weights is not None]
    return [finding for finding in judged if finding is not None and finding.evidence["after"]]


def blind(seen: Seen, length: int) -> Finding | None:
    """In causal self-attention every token may look at itself; asked of every layer."""
    for layer, (looks, where) in enumerate(seen.looks(length, length)):
        own = looks.diagonal(dim1=-2, dim2=-1)[..., 1:]
        if bool(own.any()) or not bool(looks.any()) or own_keys(seen):
            continue
        message = f"in attention {layer} over {length} tokens no token but the first may look at itself"
        return Finding("attention.blind", ERROR, message, {"layer": layer}, (where,))
    return None


def own_keys(seen: Seen) -> bool:
    """Are queries used as keys? Then a token looks most like itself, and some models hide it on purpose."""
    for product in seen.products:
        left, right = product.left, product.right.transpose(-2, -1)
        if left.shape == right.shape:
            likeness = torch.nn.functional.cosine_similarity(left.double(), right.double(), dim=-1)
            if float(likeness.min()) > 1 - 1e-6:
                return True
    return False


def future_scores(subject: Subject, view: View, model: nn.Module, path: str = "") -> dict[str, float | bool]:
    """What stands in the scores of future tokens as they enter the softmax: hidden, a constant, or a step below."""
    tokens = subject.tokens(2)
    with Watch() as watch:
        subject.quiet(view, model, tokens, path=path)
    seen, length = watch.seen, tokens.size(1)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    # where one layer of several forgets its mask, that layer is the one to look at
    found: dict[str, float | bool] = {}
    for call in seen.fused:
        if call.query.size(-2) == call.key.size(-2) == length:
            found = {"standing": not call.causal and (call.mask is None or visible_ahead(call.mask, future))}
            if found["standing"]:
                additive = call.mask is not None and call.mask.dtype != torch.bool
                found["step"] = mask_step(call.mask, future) if additive else 0.0
                return found
    for softmax in seen.softmaxes:
        maps = softmax.maps(length, length, spare=True)
        if maps is None:
            continue
        scores = maps[0].double()
        ahead = scores[:, future]
        facts: dict[str, float | bool] = {"standing": bool((ahead > -1e3).any())}
        if facts["standing"]:
            facts["constant"] = float(ahead.std()) < 1e-6
            product = next((p for p in reversed(seen.products) if p.order < softmax.order), None)
            if product is not None and product.out.numel() == scores.numel():
                facts["step"] = step(scores, product.out.double().reshape(scores.shape), future)
            return facts
        found = facts
    return found


def mask_step(mask: Tensor | None, future: Tensor) -> float:
    """By how much an additive mask favours the past."""
    assert mask is not None
    full = mask.double().expand(*mask.shape[:-2], *future.shape)
    return float(full[..., ~future].mean() - full[..., future].mean())


def visible_ahead(mask: Tensor, future: Tensor) -> bool:
    """Does a mask given to a fused kernel let any future token through?"""
    full = mask.expand(*mask.shape[:-2], *future.shape)[..., future]
    return bool(full.any()) if mask.dtype == torch.bool else bool((full > -1e3).any())


def step(scores: Tensor, product: Tensor, future: Tensor) -> float:
    """By how much past scores stand above future ones once the product itself is taken out."""
    past = ~future
    x, y = product[:, past].flatten(), scores[:, past].flatten()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).pow(2).sum()
    level = (y - slope * x).mean()
    return float(level - (scores[:, future] - slope * product[:, future]).mean())


def run(subject: Subject) -> list[Finding]:
    findings: list[Finding] = []
    seen_any = False
    for view in subject.views:
        tokens = subject.tokens(2)
        with Watch() as watch:
            subject.quiet(view, subject.model(), tokens)
        seen_any = seen_any or bool(watch.seen.softmaxes or watch.seen.fused)
        found: dict[tuple[str, ...], Finding] = {}  # by line: layers share theirs
        for softmax in watch.seen.softmaxes:
            weights = user(softmax, watch.seen.products)
            judged = judge(softmax, weights) if weights is not None else None
            if judged is not None:
                found.setdefault(judged.where, judged)
        findings += [finding for finding in found.values() if finding.where not in {f.where for f in findings}]
        if view.causal and not found:
            own = blind(watch.seen, tokens.size(1))
            findings += [own] if own is not None else []
    if not seen_any:
        raise NotArmed("no attention was seen: neither a softmax nor a fused kernel ran")
    return findings
