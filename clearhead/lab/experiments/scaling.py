"""Scaling by 1/√d_k (section 3.2.1): what goes wrong without it, for whom, and why.

The paper suspects that large dot products push the softmax "into regions where it has extremely small gradients"; some
say stability, others that the reason is not stability. Dividing scores by √d_k is the same as dividing the query
projection by √d_k, so it can matter in two ways only: how large the scores are at the start, and how far one update
moves them (Adam's steps do not shrink with the gradient). One arm therefore leaves the scaling out but starts with
smaller queries, and another also gives these queries smaller steps; if the reasoning is right, that one trains as the
scaled model does.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.training import Trained, brief, lists, small, train
from clearhead.model.attention import MultiHeadAttention, attention
from clearhead.training.loop import Callback, Loop, seed_of

SMALL_START, SMALL_STEPS = "unscaled, small start", "unscaled, small start and steps"
ARMS = {
    "scaled": "q·k / √d_k, as in the paper",
    "unscaled": "q·k as it is",
    SMALL_START: "q·k as it is, but the initial query projections are divided by √d_k",
    SMALL_STEPS: "the same, and each update of the query projections is divided by √d_k as well",
}
DRAWN = ("scaled", "unscaled")  # before training the other two are the scaled one
EQUAL = 0.05  # nats: two trainings that end within this of each other are the same here


def unscaled_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """Attention without its 1/√d: multiplied out again beforehand."""
    return attention(q * math.sqrt(q.size(-1)), k, v, *rest, **named)


def queries_of(model: torch.nn.Module) -> list[tuple[Tensor, float]]:
    """Every parameter of a query projection, and √d_k there."""
    found = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    return [(p, math.sqrt(one.query.out_features / one.heads)) for one in found for p in one.query.parameters()]


@torch.no_grad()
def shrink_queries(model: torch.nn.Module) -> None:
    """Divide every query projection by √d_k."""
    for parameter, root in queries_of(model):
        parameter /= root


class SmallSteps:
    """Callback: takes back all of each update of the query projections but 1/√d_k of it."""

    def __init__(self) -> None:
        self.before: list[Tensor] = []

    @torch.no_grad()
    def __call__(self, loop: Loop) -> None:
        for (parameter, root), before in zip(queries_of(loop.model), self.before, strict=True):
            parameter.copy_(before + (parameter - before) / root)
        self.remember(loop.model)

    def remember(self, model: torch.nn.Module) -> None:
        self.before = [parameter.detach().clone() for parameter, _ in queries_of(model)]


def at_the_start(arm: str, width: int, keys: int) -> tuple[float, float, Tensor]:
    """Variance of the scores, entropy of the weights (1: even), and for each query the norm of the gradient that
    reaches its scores, where queries and keys are independent normal numbers."""
    shape = (1, 8, keys, width)
    q, k, g = torch.randn(shape), torch.randn(shape), torch.randn(1, 8, keys, keys)
    if arm in (SMALL_START, SMALL_STEPS):
        q = q / math.sqrt(width)
    bias = torch.zeros(1, 8, keys, keys, requires_grad=True)  # added to the scores, so its gradient is theirs
    attend = attention if arm == "scaled" else unscaled_attention
    _, weights = attend(q, k, torch.zeros_like(k), bias=bias)
    (weights * g).sum().backward()
    assert bias.grad is not None
    scores = (q @ k.transpose(-2, -1)) / (math.sqrt(width) if arm == "scaled" else 1)
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean() / math.log(keys)
    return scores.var().item(), entropy.item(), bias.grad.norm(dim=-1).flatten()


def start(arm: str, seed: int, sizes: Sizes) -> Numbers:
    """By width at the middle number of keys, and by number of keys at the greatest width."""
    torch.manual_seed(seed_of(seed, "scores"))
    keys = sizes["keys"]
    by_width = [at_the_start(arm, width, keys[len(keys) // 2]) for width in sizes["d_k"]]
    torch.manual_seed(seed_of(seed, "scores by keys"))
    by_keys = [at_the_start(arm, sizes["d_k"][-1], count)[2] for count in keys]
    torch.manual_seed(seed_of(seed, "scores by keys"))
    usual = [at_the_start("scaled", sizes["d_k"][-1], count)[2].median() for count in keys]
    return {
        "variance": [row[0] for row in by_width],
        "entropy": [row[1] for row in by_width],
        "gradient": [row[2].median().item() for row in by_width],
        "median_by_keys": [found.median().item() for found in by_keys],
        "mean_by_keys": [found.mean().item() for found in by_keys],
        "tiny_by_keys": [
            (found < 0.01 * scaled).double().mean().item() for found, scaled in zip(by_keys, usual, strict=True)
        ],
    }


def trained_with(arm: str, seed: int, width: int, sizes: Sizes) -> tuple[Trained, float]:
    """An encoder-decoder with one head of this width that learned to sort, and its validation loss."""
    data = lists("sort", longest=10)
    steps = SmallSteps()

    def change(model: torch.nn.Module) -> None:
        if arm in (SMALL_START, SMALL_STEPS):
            shrink_queries(model)
        steps.remember(model)

    watch: Sequence[Callback] = [steps] if arm == SMALL_STEPS else []
    attend = attention if arm == "scaled" else unscaled_attention
    config = small(data.tokenizer.size, d_model=width, heads=1, d_ff=2 * width)
    trained = train(config, data.train, brief(sizes["steps"], seed, clip=0.0), attend, change, watch)
    return trained, trained.scores(data.validation)["loss"]


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    found = [trained_with(arm, seed, width, sizes) for width in sizes["trained_d_k"]]
    last = found[-1][0]
    middle = sorted(last.norms)[len(last.norms) // 2]
    return start(arm, seed, sizes) | {
        "loss": [loss for _, loss in found],
        "last_loss": found[-1][1],
        "spikes": max(last.norms[len(last.norms) // 5 :]) / middle,
        "course": last.smoothed(sizes["points"]),
    }


def saturates(results: Results) -> Verdict:
    entropy = {arm: results.curve(arm, "entropy")[-1].mean for arm in ARMS}
    sentence = (
        f"at d_k = {results.sizes['d_k'][-1]} the entropy of the weights is {entropy['unscaled']:.2f} of its maximum, "
        f"scaled {entropy['scaled']:.2f}"
    )
    return Verdict("holds" if entropy["unscaled"] < 0.5 * entropy["scaled"] else "does not hold here", sentence)


def vanishes(results: Results) -> Verdict:
    keys = results.sizes["keys"]

    def ratios(name: str) -> list[float]:
        plain, scaled = (results.curve(arm, name) for arm in ("unscaled", "scaled"))
        return [one.mean / two.mean for one, two in zip(plain, scaled, strict=True)]

    typical, mean = ratios("median_by_keys"), ratios("mean_by_keys")
    tiny = [point.mean for point in results.curve("unscaled", "tiny_by_keys")]
    shown = "; ".join(
        f"{count} keys: median {one:.3f}, mean {two:.2f}, {share:.0%} of the queries below 0.01"
        for count, one, two, share in zip(keys, typical, mean, tiny, strict=True)
    )
    few = [count for count, ratio in zip(keys, typical, strict=True) if ratio < 0.1]
    sentence = (
        f"gradient reaching a query's scores at d_k = {results.sizes['d_k'][-1]}, over the scaled one. {shown}. The "
        "mean hides it: it is made by the few queries whose two best keys are nearly even, and these get more than "
        "their share"
    )
    if len(few) == len(keys):
        return Verdict("holds", f"for most queries: {sentence}")
    if few:
        return Verdict("holds only if", f"there are {', '.join(map(str, few))} keys: {sentence}")
    return Verdict("does not hold here", sentence)


def harms(results: Results) -> Verdict:
    harm = results.difference("unscaled", "scaled", "last_loss")
    by_width = [
        results.difference_at("unscaled", "scaled", "loss", place) for place in range(len(results.sizes["trained_d_k"]))
    ]
    shown = ", ".join(
        f"{gap} at d_k = {width}" for gap, width in zip(by_width, results.sizes["trained_d_k"], strict=True)
    )
    sentence = f"unscaled minus scaled, in nats: {shown}"
    if harm.low > 0:
        return Verdict("holds", sentence)
    return Verdict("does not hold here" if harm.high < 0 else "cannot tell at this size", sentence)


def unstable(results: Results) -> Verdict:
    gap = results.difference("unscaled", "scaled", "spikes")
    shown = ", ".join(f"{arm} {results.interval(arm, 'spikes')}" for arm in ARMS)
    sentence = f"largest gradient norm over the median one, after the first fifth of training: {shown}"
    if gap.low > 0:
        return Verdict("holds", sentence)
    if gap.high < 1:
        return Verdict("does not hold here", f"gradients are as steady as with it: {sentence}")
    return Verdict("cannot tell at this size", sentence)


def left_over(arm: str, results: Results) -> Verdict:
    """Does this arm train like the scaled one?"""
    harm = results.difference("unscaled", "scaled", "last_loss")
    rest = results.difference(arm, "scaled", "last_loss")
    sentence = f"of {harm} nats of harm {rest} are left"
    if harm.low <= 0:
        return Verdict("cannot tell at this size", f"there is no harm to explain: {sentence}")
    if rest.low > -EQUAL and rest.high < EQUAL:
        return Verdict("holds", sentence)
    return Verdict("does not hold here" if rest.low > 0 else "cannot tell at this size", sentence)


def headline(results: Results) -> str:
    losses = {arm: results.mean(arm, "last_loss") for arm in ARMS}
    return (
        f"Unscaled, scores grow with d_k and the softmax picks one key; sorting at d_k = "
        f"{results.sizes['trained_d_k'][-1]} then ends at {losses['unscaled']:.2f} nats instead of "
        f"{losses['scaled']:.2f}. Smaller queries at the start leave {losses[SMALL_START]:.2f}; smaller queries with "
        f"smaller steps {losses[SMALL_STEPS]:.2f}."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(4)
    widths, keys = results.sizes["d_k"], results.sizes["keys"]
    entropy = results.curves(DRAWN, "entropy")
    label = "entropy of the weights (1 = even)"
    lines(axes[0], widths, entropy, "d_k, width of a head", label, "Random queries and keys: softmax", "x", [*ARMS])
    curves = results.curves(DRAWN, "gradient")
    title = f"Random queries and {keys[len(keys) // 2]} keys: a typical query"
    lines(axes[1], widths, curves, "d_k, width of a head", "gradient reaching its scores", title, "xy", [*ARMS])
    shares = {"unscaled": results.curve("unscaled", "tiny_by_keys")}
    title = f"Under 1% of the usual gradient, d_k = {widths[-1]}"
    lines(axes[2], keys, shares, "number of keys", "share of queries", title, "x", [*ARMS], share=True)
    courses = results.curves(ARMS, "course")
    stretch = results.sizes["steps"] / results.sizes["points"]
    steps = [stretch * (number + 1) for number in range(results.sizes["points"])]
    title = f"Training to sort, d_k = {results.sizes['trained_d_k'][-1]}"
    lines(axes[3], steps, courses, "update", "training loss (nats per token)", title, least=0)
    return drawn


EXPERIMENT = Experiment(
    number=1,
    name="scaling",
    claim="Without 1/√d_k the softmax saturates, gradients vanish and training becomes unstable. Or: the reason for "
    "√d_k is not stability.",
    parts=(
        Part(
            "Without it the softmax saturates.",
            "At the largest d_k the entropy of the weights is below half of the scaled one's: holds; otherwise not.",
            saturates,
        ),
        Part(
            "Without it gradients vanish.",
            "Of the gradient that reaches a query's scores, the median over queries at the largest d_k: below a tenth "
            "of the scaled one's for every number of keys: holds; for some: holds only for those; for none: does not.",
            vanishes,
        ),
        Part(
            "Without it training ends worse.",
            "The 95% interval of the paired difference in validation loss, unscaled minus scaled, at the largest "
            "trained d_k lies above zero: holds; below: does not hold here; otherwise it cannot be told.",
            harms,
        ),
        Part(
            "Without it training is unstable.",
            "The interval of the paired difference in the largest gradient norm after the first fifth of training, "
            "over the median one, lies above zero: holds; below one: does not hold here; otherwise it cannot be told.",
            unstable,
        ),
        Part(
            "The reason is how large the scores are at the start.",
            f"With a small start and no scaling, the interval of the loss minus the scaled one's lies within {EQUAL} "
            "nats of zero: holds; above zero: does not hold here; otherwise, or without harm, it cannot be told.",
            lambda results: left_over(SMALL_START, results),
        ),
        Part(
            "The reason is how large the scores are at the start and how far an update moves them.",
            "The same rule, with a small start and small steps.",
            lambda results: left_over(SMALL_STEPS, results),
        ),
    ),
    arms=ARMS,
    measured="Entropy of the weights and gradient through the softmax for random queries and keys, against d_k and the "
    "number of keys; then the validation loss and the gradient norms of an encoder-decoder with one head of width d_k "
    "that learns to sort.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={
        "seeds": 3,
        "d_k": (8, 32, 128, 512),
        "keys": (16, 64, 512),
        "trained_d_k": (16, 128),
        "steps": 200,
        "points": 10,
    },
    full={
        "seeds": 5,
        "d_k": (8, 16, 32, 64, 128, 256, 512),
        "keys": (16, 64, 128, 512),
        "trained_d_k": (16, 64, 256),
        "steps": 600,
        "points": 20,
    },
    columns={
        "last_loss": "validation loss (nats per token) at the largest trained d_k",
        "spikes": "largest gradient / median, training",
    },
)
