"""Attention as a pure function."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import SIZES, Bug, Draw, Exercise, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.attention import MISTAKES
from clearhead.learn.pictures import heat

EQUAL = {**SIZES, "B": 3, "H": 3, "S": 3, "T": 3, "d": 3}


def queries_keys_values(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    B, H, S, T, d = (sizes[letter] for letter in "BHSTd")
    return draw.normal(B, H, S, d), draw.normal(B, H, T, d), draw.normal(B, H, T, d)


def large(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of hundreds, in one row all far below zero."""
    q, k, v = queries_keys_values(sizes, draw)
    q = q.sign() * 40 + q
    k = k.sign() * 40 + k
    q[:, :, 0] = -k.mean(2)  # one query that no key likes
    return q, k, v


def weights(run: Run, wide: int = 0) -> Tensor:
    """Who looks at whom, read off with the identity as values: (B, H, S, T), with d at least T."""
    sizes = Sizes({**run.sizes, "d": max(run.sizes.T, wide)})
    q, k, _ = queries_keys_values(sizes, run.draw())
    identity = torch.eye(sizes.T, sizes.d, dtype=torch.float64).expand(sizes.B, sizes.H, -1, -1)
    found: Tensor = run.attention(q, k, identity)
    return found[..., : sizes.T].detach()


def rows_sum_to_one(run: Run) -> dict[str, Any] | None:
    found = weights(run)
    sums = found.sum(-1)
    if (sums - 1).abs().max() < 1e-4:
        return None
    axis = next((dim for dim in (-2, -3, -4) if (found.sum(dim) - 1).abs().max() < 1e-4), -1)
    return {"axis": axis, "row_sum": sums.flatten()[0].item(), "after": axis == -1}


def spread_stays(run: Run) -> dict[str, Any] | None:
    """The weights' entropy at d = 11 and at d = 64: a wider head must not be sharper."""

    def entropy(x: Tensor) -> float:
        return -(x.clamp(min=1e-30).log() * x).sum(-1).mean().item()

    narrow, wide = entropy(weights(run, 11)), entropy(weights(run, 64))
    return {"exponent": 0.5, "narrow": narrow, "wide": wide} if wide < 0.5 * narrow else None


def rows_are_their_own(run: Run) -> dict[str, Any] | None:
    """Does another row of the batch change this one?"""
    q, k, v = queries_keys_values(run.sizes, run.draw())
    both, alone = run.attention(q, k, v), run.attention(q[:1], k[:1], v[:1])
    return None if torch.allclose(both[:1], alone, atol=1e-6) else {"only": "company"}


def finite(run: Run) -> dict[str, Any] | None:
    out = run.attention(*large(run.sizes, run.draw()))
    return None if out.isfinite().all() else {"kind": "nan" if out.isnan().any() else "inf"}


def picture(parts: Mapping[str, Any]) -> str:
    draw = Draw(4)
    q = draw.normal(1, 1, 6, 8)
    identity = torch.eye(6, 8, dtype=torch.float64)[None, None]
    return heat(parts["attention"](q, q, identity)[0, 0, :, :6], "query", "key")


SOFTMAX = "scores.softmax(-1) @ v"

EXERCISE = Exercise(
    name="attention",
    question="What does each query mix?",
    about="Every query is compared with every key by a dot product; the softmax turns the scores of a query into "
    "weights that sum to one; the query gets the values, mixed by these weights. The scores are divided by √d, "
    "because a sum of d products has a deviation of √d: without it, wider heads would have a sharper softmax.",
    section="section 3.2.1, equation 1",
    shapes="""
    q (B, H, S, d)   S queries in each of H heads
    k (B, H, T, d)   T keys
    v (B, H, T, d)   T values
    -> (B, H, S, d)  for each query the mixed values
    """,
    parts=("attention",),
    trials=(
        Trial("attention", queries_keys_values),
        Trial("attention", queries_keys_values, sizes=EQUAL),
        Trial("attention", lambda sizes, draw: queries_keys_values(Sizes({**sizes, "d": 64}), draw), what="wide heads"),
        Trial("attention", large, what="scores of hundreds", kind="unstable", gradients=False, tolerance=1e-2),
        Trial(
            "attention",
            lambda sizes, draw: tuple(x.float() for x in large(sizes, draw)),
            what="scores of hundreds, in float32",
            kind="unstable",
            gradients=False,
            tolerance=1e-2,
        ),
    ),
    properties=(
        Property("attention.unnormalised", "attention", rows_sum_to_one, "the weights of a query do not sum to one"),
        Property("scale.grows", "attention", spread_stays, "wider heads look more sharply"),
        Property("finite.large", "attention", finite, "large scores give no finite numbers"),
        Property("batch.coupled", "attention", rows_are_their_own, "a row gives something else in company"),
    ),
    mistakes=MISTAKES,
    hints=(
        "Along which dimension of the scores must the weights sum to one?",
        "q kᵀ is (B, H, S, d) times (B, H, d, T), so scores are (B, H, S, T); weights times v are (B, H, S, d).",
        "`weights = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).softmax(-1)`, then `weights @ v`",
    ),
    after="Tokens can now look at each other. This is your attention, one row a query; the darker, the more it looks:",
    lab="scaling",
    ours="clearhead/model/attention.py",
    picture=picture,
    bug=Bug(
        "attention",
        ((SOFTMAX, "scores.softmax(-1).data @ v"),),
        "attention(*torch.randn(3, 1, 1, 2, 4).unbind())  # the right values",
        "the weights were cut off from the graph: queries and keys never learned, while the values were right",
    ),
)
