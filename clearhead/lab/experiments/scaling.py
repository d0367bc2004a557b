"""Scaling by 1/√d_k (section 3.2.1): is it about stability, and if so, of what?

The paper suspects that large dot products push the softmax "into regions where it has extremely small gradients". That
is a statement about the start. To tell the start from the rest, one arm leaves the scaling out but shrinks the initial
query projection by √d_k: at the first step it computes the same function as the scaled model, and afterwards it is as
unscaled as the unscaled one.
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict
from clearhead.lab.training import brief, lists, small, train
from clearhead.model.attention import MultiHeadAttention, attention
from clearhead.training.loop import seed_of

ARMS = {
    "scaled": "q·k / √d_k, as in the paper",
    "unscaled": "q·k as it is",
    "unscaled, small start": "q·k as it is, but the initial query projections are divided by √d_k",
}


def unscaled_attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """Attention without its 1/√d: multiplied out again beforehand."""
    return attention(q * math.sqrt(q.size(-1)), k, v, *rest, **named)


def shrink_queries(model: torch.nn.Module) -> None:
    """Divide every query projection by √d_k."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            with torch.no_grad():
                module.query.weight /= math.sqrt(module.query.out_features / module.heads)


def at_the_start(arm: str, width: int, keys: int) -> tuple[float, float, float]:
    """Variance of the scores, entropy of the weights (1: even), and the gradient that reaches the scores, for
    queries and keys of independent normal numbers."""
    shape = (1, 8, keys, width)
    q, k, g = torch.randn(shape), torch.randn(shape), torch.randn(1, 8, keys, keys)
    if arm == "unscaled, small start":
        q = q / math.sqrt(width)
    bias = torch.zeros(1, 8, keys, keys, requires_grad=True)  # added to the scores, so its gradient is theirs
    attend = attention if arm == "scaled" else unscaled_attention
    _, weights = attend(q, k, torch.zeros_like(k), bias=bias)
    (weights * g).sum().backward()
    assert bias.grad is not None
    scores = (q @ k.transpose(-2, -1)) / (math.sqrt(width) if arm == "scaled" else 1)
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean() / math.log(keys)
    return scores.var().item(), entropy.item(), bias.grad.norm(dim=-1).mean().item()


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    torch.manual_seed(seed_of(seed, "scores"))
    start = [at_the_start(arm, width, sizes["keys"]) for width in sizes["d_k"]]
    numbers: Numbers = {
        "variance": [row[0] for row in start],
        "entropy": [row[1] for row in start],
        "gradient": [row[2] for row in start],
    }
    data = lists("sort", longest=10)
    losses = []
    for width in sizes["trained_d_k"]:
        config = small(data.tokenizer.size, d_model=width, heads=1, d_ff=2 * width)
        trained = train(
            config,
            data.train,
            brief(sizes["steps"], seed),
            attend=attention if arm == "scaled" else unscaled_attention,
            change=shrink_queries if arm == "unscaled, small start" else None,
        )
        losses.append(trained.scores(data.validation)["loss"])
    numbers["loss"] = losses
    numbers["last_loss"] = losses[-1]
    numbers["course"] = trained.smoothed(sizes["points"])
    return numbers


def verdict(results: Results) -> Verdict:
    entropy = {arm: results.curve(arm, "entropy")[-1].mean for arm in ARMS}
    gradient = {arm: results.curve(arm, "gradient")[-1].mean for arm in ARMS}
    widest, trained = results.sizes["d_k"][-1], results.sizes["trained_d_k"][-1]
    saturated = (
        f"Unscaled, at d_k = {widest} the entropy of the weights is {entropy['unscaled']:.2f} of its maximum (scaled "
        f"{entropy['scaled']:.2f}) and the gradient reaching the scores is "
        f"{gradient['unscaled'] / gradient['scaled']:.2f} of the scaled one"
    )
    harm = results.difference("unscaled", "scaled", "last_loss")
    rest = results.difference("unscaled, small start", "scaled", "last_loss")
    rescue = results.difference("unscaled", "unscaled, small start", "last_loss")
    harmed = f"{saturated}. Training at d_k = {trained} ends {harm} nats higher without scaling"
    sharp = entropy["unscaled"] <= 0.5 * entropy["scaled"]
    if not sharp or gradient["unscaled"] > 0.5 * gradient["scaled"]:
        kept = "gradients shrink less than the claim has it" if sharp else "the softmax is not saturated"
        return Verdict("does not hold here", f"{kept}. {harmed}")
    if harm.low <= 0:
        return Verdict("does not hold here" if harm.high < 0 else "cannot tell at this size", harmed)
    if rescue.low > 0 and rest.mean < 0.5 * harm.mean:
        return Verdict(
            "holds only if",
            f"training starts saturated: with a small start and no scaling, only {rest} nats of the harm are left. "
            f"{harmed}; most of what the scaling saves is the start, not the stability of what follows",
        )
    return Verdict("holds", f"{harmed}, and a small start alone does not repair it ({rest} nats above)")


def figure(results: Results) -> Figure:
    drawn, axes = panels(4)
    widths = results.sizes["d_k"]
    for panel, name, label, title, log in (
        (axes[0], "variance", "variance of the scores", "Random queries and keys: scores", "xy"),
        (axes[1], "entropy", "entropy of the weights (1 = even)", "Random queries and keys: softmax", "x"),
        (axes[2], "gradient", "gradient reaching the scores", "Random queries and keys: gradient", "xy"),
    ):
        curves = results.curves(ARMS, name)
        lines(panel, widths, curves, "d_k, width of a head", label, title, log)
    courses = results.curves(ARMS, "course")
    stretch = results.sizes["steps"] / results.sizes["points"]
    steps = [stretch * (number + 1) for number in range(results.sizes["points"])]
    title = f"Training to sort, d_k = {results.sizes['trained_d_k'][-1]}"
    lines(axes[3], steps, courses, "update", "training loss (nats per token)", title, least=0)
    return drawn


EXPERIMENT = Experiment(
    number=1,
    name="scaling",
    claim="Without 1/√d_k the softmax saturates, gradients vanish and training becomes unstable.",
    arms=ARMS,
    measured="Variance of q·k, entropy of the weights and gradient through the softmax against d_k; then the "
    "validation loss of an encoder-decoder with one head of width d_k that learns to sort.",
    rule="Saturation: at the largest d_k, entropy and gradient without scaling are below half of those with it; if one "
    "is not, the claim as worded does not hold here, whatever the harm. Harm: the 95% interval of the paired "
    "difference in validation loss, unscaled minus scaled, lies above zero. If there is harm, and the small start "
    "removes more than half of it with an interval above zero, the claim holds only if training starts saturated; if "
    "not, it holds. No harm: it does not hold here or cannot be told.",
    measure=measure,
    verdict=verdict,
    figure=figure,
    quick={"seeds": 3, "d_k": (8, 32, 128, 512), "keys": 64, "trained_d_k": (16, 128), "steps": 200, "points": 10},
    full={
        "seeds": 5,
        "d_k": (8, 16, 32, 64, 128, 256, 512),
        "keys": 128,
        "trained_d_k": (16, 64, 256),
        "steps": 600,
        "points": 20,
    },
    columns={"last_loss": "validation loss (nats per token) at the largest trained d_k"},
)
