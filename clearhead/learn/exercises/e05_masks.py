"""Causal and padding masks, as booleans, before the softmax."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import SIZES, Bug, Draw, Exercise, Property, Run, Sizes, Trial, broadcast
from clearhead.learn.exercises.e04_attention import large, queries_keys_values
from clearhead.learn.mistakes.masks import MISTAKES
from clearhead.learn.pictures import heat

SQUARE = {**SIZES, "S": 5, "T": 5}
ALIKE = {**SIZES, "B": 4, "H": 4, "S": 4, "T": 4}


def length(sizes: Sizes, draw: Draw) -> tuple[int]:
    return (sizes.S,)


def real(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    return (draw.real(sizes),)


def spread(run: Run, real: Tensor) -> Tensor:
    """The mask as every query and head would see it."""
    return broadcast(run.padding_mask(real), run.sizes.B, run.sizes.H, run.sizes.S, run.sizes.T)


def visible(sizes: Sizes, draw: Draw) -> Tensor:
    """(B, 1, 1, T) from real tokens."""
    return draw.real(sizes)[:, None, None, :]


def padded(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    return *queries_keys_values(sizes, draw), visible(sizes, draw)


def causal(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    square = Sizes({**sizes, "T": sizes.S})
    return *queries_keys_values(square, draw), torch.ones(sizes.S, sizes.S, dtype=torch.bool).tril()


def combined(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    square = Sizes({**sizes, "T": sizes.S})
    q, k, v = queries_keys_values(square, draw)
    mask = torch.ones(sizes.S, sizes.S, dtype=torch.bool).tril() & visible(square, draw)
    mask[..., 0] = True  # every query sees something
    return q, k, v, mask


def loud(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    """Hidden keys whose scores would be large."""
    q, k, v, mask = padded(sizes, draw)
    q, k = q.abs() + 1, torch.where(mask.transpose(-1, -2), k, 50_000.0 + k)
    return q, k, torch.where(mask.transpose(-1, -2), v, 90 + v), mask


def faint(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    """Keys that may be seen, but whose scores are far below zero."""
    q, k, v, mask = padded(sizes, draw)
    return q.abs() + 5, -(k.abs() + 9000), v, mask


def silent(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    """A query to which all keys are alike: each score is zero."""
    q, k, v, mask = padded(sizes, draw)
    q[..., 0, :] = 0
    return q, k, v, mask


def extreme(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    return *large(sizes, draw), visible(sizes, draw)


def together(run: Run, q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Any:
    """The three parts as they are used: a causal mask and a padding mask, combined."""
    may_attend = run.causal_mask(q.size(2)) & run.padding_mask(real)
    return run.masked_attention(q, k, v, may_attend)


def whole(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    square = Sizes({**sizes, "T": sizes.S})
    real = draw.real(square)
    real[:, 0] = True
    return *queries_keys_values(square, draw), real


def future_hidden(run: Run) -> dict[str, Any] | None:
    """Change token j: which outputs before j move? As the doctor's probe has it, but for the bare functions."""
    sizes = Sizes({**run.sizes, "T": run.sizes.S})
    q, k, v = queries_keys_values(sizes, run.draw())
    mask = run.causal_mask(sizes.S)
    before = run.masked_attention(q, k, v, mask)
    positions, offsets = set(), set()
    for j in range(1, sizes.S):
        changed_k, changed_v = k.clone(), v.clone()
        changed_k[:, :, j] += 1
        changed_v[:, :, j] += 1
        moved = (run.masked_attention(q, changed_k, changed_v, mask) - before).abs().amax((0, 1, 3)) > 0
        for i in range(j):
            if moved[i]:
                positions.add(i)
                offsets.add(j - i)
    if not offsets:
        return None
    return {"positions": sorted(positions), "offsets": sorted(offsets), "depth_one_offsets": sorted(offsets)}


def rows_sum_to_one(run: Run) -> dict[str, Any] | None:
    sizes = Sizes({**run.sizes, "d": run.sizes.T})
    q, k, _ = queries_keys_values(sizes, run.draw())
    identity = torch.eye(sizes.T, dtype=torch.float64).expand(sizes.B, sizes.H, -1, -1)
    sums = run.masked_attention(q, k, identity, visible(sizes, run.draw())).sum(-1)
    if (sums - 1).abs().max() < 1e-4:
        return None
    return {"after": True, "axis": -1, "row_sum": sums.min().item()}


def padding_hidden(run: Run) -> dict[str, Any] | None:
    """Scramble the hidden keys and values: nothing may move."""
    q, k, v, mask = padded(run.sizes, run.draw())
    hidden = ~mask.transpose(-1, -2)
    before = run.masked_attention(q, k, v, mask)
    after = run.masked_attention(q, torch.where(hidden, k + 3, k), torch.where(hidden, v - 7, v), mask)
    moved = (after - before).abs().max().item()
    return {"relative": moved, "after_softmax": moved < 1e-9} if moved > 1e-9 else None


def blind(run: Run) -> dict[str, Any] | None:
    q, k, v = queries_keys_values(run.sizes, run.draw())
    out = run.masked_attention(q, k, v, torch.zeros(run.sizes.S, run.sizes.T, dtype=torch.bool))
    return {} if out.isnan().any() else None


def picture(parts: Mapping[str, Any]) -> str:
    q = Draw(4).normal(1, 1, 6, 8)
    identity = torch.eye(6, 8, dtype=torch.float64)[None, None]
    mask = parts["causal_mask"](6)
    return heat(parts["masked_attention"](q, q, identity, mask)[0, 0, :, :6], "query", "key")


REAL = "real[:, None, None, :]"


EXERCISE = Exercise(
    name="masks",
    question="Who may look at whom?",
    about="A decoder must not see the tokens it is to write, and nobody should see padding. A mask says for each "
    "query which keys it may look at. It acts on the scores, before the softmax: a score of −∞ gets the weight zero, "
    "and the weights that are left still sum to one.",
    section="section 3.2.3",
    shapes="""
    causal_mask: S -> (S, S), boolean, True where query i (row) may look at key j (column)
    padding_mask: real (B, T), True at real tokens -> (B, 1, 1, T), boolean, which broadcasts over heads and queries
    masked_attention: as attention, with may_attend, which broadcasts to (B, H, S, T); True = may look; None = all may
    Every query here may look at something at least.
    """,
    parts=("causal_mask", "padding_mask", "masked_attention"),
    trials=(
        Trial("causal_mask", length, sizes={"S": 3}, gradients=False),
        Trial("causal_mask", length, sizes={"S": 5}, gradients=False),
        Trial("causal_mask", length, sizes={"S": 1}, gradients=False),
        Trial("padding_mask", real, spread, sizes=SIZES, gradients=False, shown="padding_mask(real)"),
        Trial("padding_mask", real, spread, sizes=ALIKE, gradients=False, shown="padding_mask(real)"),
        Trial("masked_attention", lambda s, d: (*queries_keys_values(s, d), None), what="without a mask"),
        Trial("masked_attention", causal, what="with a causal mask"),
        Trial("masked_attention", padded, what="with a padding mask"),
        Trial("masked_attention", combined, what="with both"),
        Trial("masked_attention", padded, sizes=ALIKE, what="with a padding mask"),
        Trial("masked_attention", loud, what="hidden keys of large scores", gradients=False),
        Trial("masked_attention", faint, what="all scores far below zero", gradients=False),
        Trial("masked_attention", silent, what="a query of zeros", gradients=False),
        Trial("masked_attention", extreme, what="scores of hundreds", kind="unstable", gradients=False, tolerance=1e-2),
        Trial(
            "masked_attention",
            whole,
            together,
            what="with causal_mask(S) & padding_mask(real)",
            shown="masked_attention(q, k, v, real)",
        ),
    ),
    properties=(
        Property("future.visible", "masked_attention", future_hidden, "a position sees its future"),
        Property("attention.unnormalised", "masked_attention", rows_sum_to_one, "the weights do not sum to one"),
        Property("padding.content", "masked_attention", padding_hidden, "what is hidden still changes the result"),
        Property(
            "remark.blind",
            "masked_attention",
            blind,
            "a query that may look at nothing gets NaN; every query of this course sees something, "
            "and clearhead/model gives such a query zeros",
        ),
    ),
    mistakes=MISTAKES,
    hints=(
        "Which score gives the weight zero? And whose padding is hidden from whom?",
        "causal (S, S); padding (B, 1, 1, T); both broadcast to the scores (B, H, S, T), where rows are queries.",
        "`scores = scores.masked_fill(~may_attend, -math.inf)` before the softmax; "
        "`torch.ones(S, S, dtype=torch.bool).tril()`; `real[:, None, None, :]`",
    ),
    after="A decoder can now be trained on all positions at once, and sentences of different lengths fit one batch. "
    "The staircase of your causal mask:",
    lab="causal-mask",
    ours="clearhead/model/masks.py",
    picture=picture,
    bug=Bug(
        "padding_mask",
        ((REAL, "real[:1, None, None, :].expand(len(real), 1, 1, -1)"),),
        "padding_mask(torch.tensor([[True, True, False]]))  # hides the padding, as it should",
        "the first row's padding was hidden in every row; with one row, or rows of one length, nobody would notice",
    ),
)
