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
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
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


def at(results: Results, name: str, arms: tuple[str, ...] = tuple(ARMS)) -> str:
    return ", ".join(f"{arm} {results.mean(arm, name):.2f}" for arm in arms)


def essential(arms: tuple[str, ...], results: Results) -> Verdict:
    """Is a deep stack worse without it, and a shallow one?"""
    shallow, deep = results.sizes["trained"][0], results.sizes["trained"][-1]
    worse = [results.difference(arm, "pre-norm", "deep_warm").low > 0 for arm in arms]
    shallow_worse = [results.difference(arm, "pre-norm", "shallow_warm").low > 0 for arm in arms]
    shown = ("pre-norm", *arms)
    sentence = (
        f"validation loss at {deep} layers: {at(results, 'deep_warm', shown)} nats; at {shallow}: "
        f"{at(results, 'shallow_warm', shown)}"
    )
    if all(worse):
        return (
            Verdict("holds", sentence)
            if all(shallow_worse)
            else Verdict("holds only if", f"the stack is deep: {sentence}")
        )
    return Verdict("cannot tell at this size" if any(worse) else "does not hold here", sentence)


def pre_norm_trains(results: Results) -> Verdict:
    deep, depths = results.sizes["trained"][-1], results.sizes["trained"]
    gaps = {start: results.difference("post-norm", "pre-norm", f"deep_{start}") for start in ("warm", "cold")}
    by_depth = [results.difference_at("post-norm", "pre-norm", "warm", place) for place in range(len(depths))]
    same = [depth for depth, gap in zip(depths, by_depth, strict=True) if gap.low <= 0]
    sentence = (
        f"post-norm minus pre-norm at {deep} layers: {gaps['warm']} nats with warm-up, {gaps['cold']} without; no "
        f"measurable difference at {', '.join(map(str, same)) or 'no'} layers"
    )
    if all(gap.low > 0 for gap in gaps.values()):
        return Verdict("holds", sentence)
    if any(gap.low > 0 for gap in gaps.values()):
        return Verdict("holds only if", f"training starts {'cold' if gaps['cold'].low > 0 else 'warm'}: {sentence}")
    return Verdict("does not hold here", sentence)


def gradients_say_why(results: Results) -> Verdict:
    """Is post-norm's gradient uneven over the layers where pre-norm's is not?"""
    depth = results.sizes["depths"][-1]
    ratio = {arm: abs(results.curve(arm, "ratio xavier")[-1].mean) for arm in ("pre-norm", "post-norm")}
    shown = ", ".join(f"{arm} {10 ** results.curve(arm, 'ratio xavier')[-1].mean:.3g}" for arm in ratio)
    sentence = f"gradient of the first layer over that of the last, untrained, {depth} layers: {shown}"
    return Verdict("holds" if ratio["post-norm"] > 1 > ratio["pre-norm"] else "does not hold here", sentence)


def initialisation(results: Results) -> Verdict:
    depth = results.sizes["depths"][-1]
    shown = {
        arm: {init: 10 ** results.curve(arm, f"ratio {init}")[-1].mean for init in INITIALISATIONS}
        for arm in ("pre-norm", "post-norm", "no norm")
    }
    words = "; ".join(
        f"{arm}: " + ", ".join(f"{init} {ratio:.2g}" for init, ratio in found.items()) for arm, found in shown.items()
    )
    sentence = f"gradient of the first layer over that of the last, untrained, {depth} layers. {words}"
    spread = {arm: max(found.values()) / max(min(found.values()), 1e-38) for arm, found in shown.items()}
    if min(spread.values()) > 10:
        return Verdict("holds", sentence)
    touched = [arm for arm, size in spread.items() if size > 10]
    if touched:
        return Verdict("holds only if", f"one speaks of {', '.join(touched)}: {sentence}")
    return Verdict("does not hold here", sentence)


def headline(results: Results) -> str:
    deep = results.sizes["trained"][-1]
    return (
        f"At {deep} layers only pre-norm learns ({results.mean('pre-norm', 'deep_warm'):.2f} nats; post-norm "
        f"{results.mean('post-norm', 'deep_warm'):.2f}, no residual {results.mean('no residual', 'deep_warm'):.2f}, no "
        f"norm {results.mean('no norm', 'deep_warm'):.2f}); at {results.sizes['trained'][0]} layers all of them do."
    )


def figure(results: Results) -> Figure:
    """What was trained first, because it is what counts; below it what gradients say before training."""
    drawn, axes = panels(6)
    depths, trained = results.sizes["depths"], results.sizes["trained"]
    for panel, start, title in (
        (axes[0], "warm", "Trained with warm-up"),
        (axes[1], "cold", "Trained without warm-up"),
    ):
        losses = results.curves(ARMS, start)
        lines(panel, trained, losses, "layers", "validation loss (nats per token)", title, "xy")
    layers = results.curves(ARMS, "layers xavier")
    numbers = list(range(1, depths[-1] + 1))
    label = "gradient norm (log₁₀)"
    lines(axes[2], numbers, layers, "layer", label, f"Untrained, {depths[-1]} layers: gradient by layer")
    for panel, initialisation in zip(axes[3:], INITIALISATIONS, strict=True):
        ratios = results.curves(ARMS, f"ratio {initialisation}")
        label = "gradient, first layer / last (log₁₀)"
        lines(panel, depths, ratios, "layers", label, f"Untrained, {initialisation}", "x")
    return drawn


EXPERIMENT = Experiment(
    number=5,
    name="norm-and-residual",
    claim="Residual connections and layer norm are essential for deep stacks, and pre-norm trains where post-norm does "
    "not.",
    parts=(
        Part(
            "Deep stacks need residual connections.",
            "Without residuals the 95% interval of the loss minus pre-norm's, trained with warm-up, lies above zero at "
            "the greatest depth and at the smallest: holds; only at the greatest: holds only if deep; at none: does "
            "not hold here.",
            lambda results: essential(("no residual", "neither"), results),
        ),
        Part(
            "Deep stacks need layer norm.",
            "The same rule without norms.",
            lambda results: essential(("no norm",), results),
        ),
        Part(
            "Pre-norm trains where post-norm does not.",
            "The interval of post-norm's loss minus pre-norm's at the greatest depth lies above zero with and without "
            "warm-up: holds; with one of them: holds only then; with none: does not hold here.",
            pre_norm_trains,
        ),
        Part(
            "That is because post-norm's gradients shrink from layer to layer and pre-norm's do not.",
            "Untrained, at the greatest depth, the first layer's gradient differs from the last one's by more than a "
            "factor of ten in post-norm and by less in pre-norm: holds; otherwise it does not hold here.",
            gradients_say_why,
        ),
        Part(
            "Depth needs careful initialisation.",
            "At the greatest depth, untrained, the ratio of the first layer's gradient to the last one's differs by "
            "more than a factor of ten between three initialisations, for pre-norm, post-norm and no norm: holds; for "
            "some of them: holds only for those; for none: does not hold here.",
            initialisation,
        ),
    ),
    arms=ARMS,
    measured="An encoder of width 32 that counts: the gradient's norm in the first layer over that in the last, before "
    "training, by depth and initialisation; the validation loss after training with and without warm-up.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "depths": (2, 4, 8, 16), "trained": (2, 8), "steps": 150, "peak": 3e-3},
    full={"seeds": 5, "depths": (2, 4, 8, 12, 16, 24), "trained": (2, 6, 12, 24), "steps": 400, "peak": 1e-3},
    columns={
        "shallow_warm": "loss, fewest layers, warm-up (nats)",
        "deep_warm": "loss, most layers, warm-up (nats)",
        "deep_cold": "loss, most layers, no warm-up (nats)",
    },
)
