"""Norms and residuals: which of them deep stacks really need, and what the norm's place has to do with warm-up.

Each arm is the same encoder with another road around its sub-layers. First without any training: how much gradient
reaches the first layer, compared with the last, by depth and for three initialisations. Then trained, with a warm-up
and without, at a shallow and at a deep size.
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict
from clearhead.lab.no_residual import NoResidual
from clearhead.lab.training import brief, lists, small, train
from clearhead.model import ModelConfig, build
from clearhead.model.residual import Residual
from clearhead.training.loop import seed_of
from clearhead.training.loss import summed_loss

ARMS = {
    "pre-norm": "x + f(norm(x)), and a norm at the end",
    "post-norm": "norm(x + f(x))",
    "no norm": "x + f(x)",
    "no residual": "norm(f(x))",
    "neither": "f(x)",
}
ABLATED = ("no norm", "no residual", "neither")
INITIALISATIONS = ("xavier", "gpt2", "xavier by depth")


def rebuild(model: Any, arm: str, initialisation: str) -> None:
    """Give each residual the arm's form, and shrink what writes into it, if asked to."""
    for layer in model.encoder.layers:
        for name in ("self_attention_residual", "feed_forward_residual"):
            residual: Residual = getattr(layer, name)
            if arm in ("no norm", "neither"):
                residual.norm = nn.Identity()
            if arm in ("no residual", "neither"):
                setattr(layer, name, NoResidual(residual.norm))
        if initialisation == "xavier by depth":
            with torch.no_grad():
                for matrix in (layer.self_attention.out.weight, layer.feed_forward.outer.weight):
                    matrix /= math.sqrt(2 * len(model.encoder.layers))
    if arm in ("no norm", "neither"):
        model.encoder.norm = None


def config_of(arm: str, depth: int, data: Any, initialisation: str = "xavier") -> ModelConfig:
    return small(
        data.tokenizer.size,
        kind="encoder",
        head=data.train.head,
        d_model=32,
        heads=2,
        d_ff=64,
        encoder_layers=depth,
        norm={"placement": "pre" if arm == "pre-norm" else "post"},
        init="gpt2" if initialisation == "gpt2" else "xavier",
    )


def gradients(arm: str, depth: int, data: Any, initialisation: str, seed: int) -> list[float]:
    """The norm of the gradient of each layer's parameters before any training."""
    torch.manual_seed(seed_of(seed, "weights"))
    model = build(config_of(arm, depth, data, initialisation))
    rebuild(model, arm, initialisation)
    batch = data.train.collate(data.train.plan(seed, 0, 512)[0])
    (summed_loss(model, model.hidden(**batch.inputs), batch.labels) / batch.count).backward()
    layers: Any = model.encoder.layers  # type: ignore[union-attr]
    return [math.sqrt(sum(float(p.grad.square().sum()) for p in layer.parameters())) for layer in layers]


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    data = lists("count", symbols=6, longest=10)
    numbers: Numbers = {}
    for initialisation in INITIALISATIONS:
        norms = [gradients(arm, depth, data, initialisation, seed) for depth in sizes["depths"]]
        # the ratio spans dozens of orders of magnitude: its logarithm, and a floor where float32 has nothing left
        numbers[f"ratio {initialisation}"] = [
            math.log10(max(by_layer[0], 1e-38) / max(by_layer[-1], 1e-38)) for by_layer in norms
        ]
        numbers[f"layers {initialisation}"] = [math.log10(max(norm, 1e-38)) for norm in norms[-1]]
    losses: dict[str, list[float]] = {"cold": [], "warm": []}
    for depth in sizes["trained"]:
        for start, warmup in (("cold", 0), ("warm", sizes["steps"] // 3)):
            settings = brief(sizes["steps"], seed, sizes["peak"], warmup=warmup)
            config = config_of(arm, depth, data)
            trained = train(config, data.train, settings, change=lambda model: rebuild(model, arm, "xavier"))
            losses[start].append(min(trained.scores(data.validation)["loss"], 10.0))
    numbers |= {"cold": losses["cold"], "warm": losses["warm"]}
    numbers |= {"deep_cold": losses["cold"][-1], "deep_warm": losses["warm"][-1]}
    return numbers | {"shallow_warm": losses["warm"][0]}


def verdict(results: Results) -> Verdict:
    shallow, deep = results.sizes["trained"][0], results.sizes["trained"][-1]
    worse = [arm for arm in ABLATED if results.difference(arm, "pre-norm", "deep_warm").low > 0]
    worse_shallow = [arm for arm in ABLATED if results.difference(arm, "pre-norm", "shallow_warm").low > 0]
    shown = ", ".join(f"{arm} {results.mean(arm, 'deep_warm'):.2f}" for arm in ARMS)
    cold = ", ".join(f"{arm} {results.mean(arm, 'deep_cold'):.2f}" for arm in ("pre-norm", "post-norm"))
    post = {start: results.difference("post-norm", "pre-norm", f"deep_{start}") for start in ("warm", "cold")}
    sentence = (
        f"validation loss at {deep} layers: {shown} nats with warm-up; without it {cold}. Post-norm minus pre-norm: "
        f"{post['warm']} with warm-up, {post['cold']} without"
    )
    parts = [arm for arm in (*ABLATED, "post-norm") if arm in worse or (arm == "post-norm" and post["warm"].low > 0)]
    if len(parts) == len(ABLATED) + 1:
        if len(worse_shallow) == len(ABLATED):
            return Verdict("holds", f"{sentence}; at {shallow} layers the three ablations are worse as well")
        fine = ", ".join(arm for arm in ABLATED if arm not in worse_shallow)
        return Verdict(
            "holds only if", f"the stack is deep: at {shallow} layers {fine} does no measurable harm; {sentence}"
        )
    if parts:
        return Verdict("holds only if", f"one speaks of {', '.join(parts)}: {sentence}")
    return Verdict("does not hold here", sentence)


def figure(results: Results) -> Figure:
    drawn, axes = panels(6)
    depths, trained = results.sizes["depths"], results.sizes["trained"]
    for panel, initialisation in zip(axes, INITIALISATIONS, strict=False):
        ratios = results.curves(ARMS, f"ratio {initialisation}")
        label = "gradient, first layer / last (log₁₀)"
        lines(panel, depths, ratios, "layers", label, f"Untrained, {initialisation}", "x")
    layers = results.curves(ARMS, "layers xavier")
    numbers = list(range(1, depths[-1] + 1))
    lines(axes[3], numbers, layers, "layer", "gradient (log₁₀ of its norm)", f"Untrained, xavier, {depths[-1]} layers")
    for panel, start, title in (
        (axes[4], "warm", "Trained with warm-up"),
        (axes[5], "cold", "Trained without warm-up"),
    ):
        losses = results.curves(ARMS, start)
        lines(panel, trained, losses, "layers", "validation loss (nats per token)", title, "xy")
    return drawn


EXPERIMENT = Experiment(
    number=5,
    name="norm-and-residual",
    claim="Residual connections and layer norm are essential for deep stacks, and pre-norm trains where post-norm does "
    "not.",
    arms=ARMS,
    measured="An encoder of width 32 that counts: the gradient's norm in the first layer over that in the last, before "
    "training, by depth and initialisation; the validation loss after training with and without warm-up.",
    rule="An arm (no norm, no residual, neither, post-norm) is worse if the 95% interval of its loss minus pre-norm's, "
    "trained with warm-up, lies above zero. All four worse at the greatest depth, and the first three at the smallest "
    "as well: holds. All four, but only at the greatest: holds only if deep. Some of them: holds only for those. None: "
    "does not hold here.",
    measure=measure,
    verdict=verdict,
    figure=figure,
    quick={"seeds": 3, "depths": (2, 4, 8, 16), "trained": (2, 8), "steps": 150, "peak": 3e-3},
    full={"seeds": 5, "depths": (2, 4, 8, 12, 16, 24), "trained": (2, 6, 12, 24), "steps": 400, "peak": 1e-3},
    columns={
        "shallow_warm": "loss, fewest layers, warm-up (nats)",
        "deep_warm": "loss, most layers, warm-up (nats)",
        "deep_cold": "loss, most layers, no warm-up (nats)",
    },
)
