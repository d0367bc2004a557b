"""Residual connections, an encoder layer, and the stack of them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import Bug, Draw, Exercise, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.encoder import LOOP, MISTAKES

# one length, since the tokens of a sequence look at each other; small, since whole layers run
SMALL = {"B": 2, "T": 5, "H": 2, "d": 3, "F": 5, "padded": 1}
ALL = 1.0  # a dropout that takes everything: what is left must be norm(x)


def states(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    return (draw.normal(sizes.B, sizes.T, sizes.D),)


def with_real(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    return *states(sizes, draw), draw.real(sizes)


def states_and_map(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    """x, and the matrix that stands for a sub-layer."""
    return *states(sizes, draw), draw.normal(sizes.D, sizes.D)


def residual(run: Run, x: Tensor, weight: Tensor) -> Any:
    return run.module("Residual", run.sizes.D, 0.1)(x, lambda x: (x + 0.5) @ weight)


def residual_of_zero(run: Run, x: Tensor) -> Any:
    return run.module("Residual", run.sizes.D, 0.1)(x, lambda x: x * 0)


def residual_in_training(run: Run, x: Tensor, weight: Tensor) -> Any:
    return run.module("Residual", run.sizes.D, ALL).train()(x, lambda x: (x + 0.5) @ weight)


def encoder_layer(run: Run, x: Tensor, real: Tensor | None = None) -> Any:
    module = run.module("EncoderLayer", run.sizes.D, run.sizes.H, run.sizes.F, 0.1)
    return module(x) if real is None else module(x, real[:, None, None, :])[real]


def encoder_layer_in_training(run: Run, x: Tensor) -> Any:
    return run.module("EncoderLayer", run.sizes.D, run.sizes.H, run.sizes.F, ALL).train()(x)


def encoder(run: Run, x: Tensor, real: Tensor | None = None, layers: int = 3) -> Any:
    """What padding itself becomes is nobody's business, so only real tokens are compared."""
    module = run.module("Encoder", layers, run.sizes.D, run.sizes.H, run.sizes.F, 0.1)
    return module(x) if real is None else module(x, real)[real]


def layers_differ(run: Run) -> dict[str, Any] | None:
    """Do fresh layers have parameters of their own, and different ones?"""
    built = run.Encoder(3, 6, 2, 4, 0.0)
    first, second = (dict(built.layers[number].named_parameters()) for number in (0, 1))
    for name, parameter in first.items():
        if parameter.dim() == 2 and torch.equal(parameter, second[name]):
            called = "Encoder(3, 6, 2, 4, 0.0), fresh"
            return {"called": called, "got": f"layers.0.{name} equals layers.1.{name}", "wanted": "different numbers"}
    return None


def dropout_acts(run: Run) -> dict[str, Any] | None:
    torch.manual_seed(0)
    built = run.Residual(64, 0.5).train()
    x = torch.zeros(1, 1, 64)
    found = built(x, lambda x: x + 1)
    kept = (found > 0).double().mean().item()
    if 0.2 < kept < 0.8:
        return None
    called = "Residual(64, 0.5).train()(x, lambda x: x + 1), x all zero"
    return {"called": called, "got": f"{kept:.0%} of the sub-layer's numbers are left", "wanted": "about half of them"}


def picture(parts: Mapping[str, Any]) -> str:
    """How much of the gradient at the top reaches each layer of a fresh stack of eight."""
    torch.manual_seed(1)
    built = parts["Encoder"](8, 16, 2, 32, 0.0)
    x = torch.randn(2, 6, 16)
    (built(x) * torch.randn_like(x)).sum().backward()  # not of the squares: after a norm their sum never changes
    norms = [sum(float(p.grad.square().sum()) for p in layer.parameters()) ** 0.5 for layer in built.layers]
    return "\n".join(f"layer {n}  {'█' * round(30 * size / max(norms))}" for n, size in enumerate(norms, 1))


EXERCISE = Exercise(
    name="encoder",
    question="Why can it be deep?",
    about="Around every sub-layer goes a road: what it makes of x is added to x, so that a gradient reaches the first "
    "layer of a deep stack whatever the layers do. In 2017 the norm comes last, over the sum, and dropout acts on what "
    "the sub-layer made before it is added. A layer is attention and feed-forward, each in a residual; the encoder is "
    "a stack of layers, each with parameters of its own.",
    section="section 3.1",
    shapes="""
    Residual: x (B, S, D), sublayer: a function from (B, S, D) to (B, S, D) -> norm(x + dropout(sublayer(x)))
    EncoderLayer: x (B, S, D), may_attend as in masked_attention -> (B, S, D); self-attention, then feed-forward
    Encoder: x (B, S, D), real (B, S), True at real tokens, or None: all are -> (B, S, D)
        you write its constructor too: so many EncoderLayers, fresh ones, in `self.layers`
    Padding is hidden from every layer. What padding itself becomes is nobody's business.
    """,
    parts=("Residual", "EncoderLayer", "Encoder"),
    written=("Encoder.__init__",),
    trials=(
        Trial(
            "Residual",
            states,
            residual_of_zero,
            "a sub-layer that gives zero",
            SMALL,
            shown="Residual(width, dropout)(x)",
        ),
        Trial(
            "Residual",
            states_and_map,
            residual,
            "a sub-layer (x + 0.5) W",
            SMALL,
            shown="Residual(width, dropout)(x, W)",
        ),
        Trial(
            "Residual",
            states_and_map,
            residual_in_training,
            "in training, with a dropout that takes everything",
            SMALL,
            shown="Residual(width, 1.0).train()(x, W)",
        ),
        Trial("EncoderLayer", states, encoder_layer, "without a mask", SMALL, shown="EncoderLayer(…)(x)"),
        Trial(
            "EncoderLayer",
            with_real,
            encoder_layer,
            "with the mask of real tokens",
            SMALL,
            shown="EncoderLayer(…)(x, real)",
        ),
        Trial(
            "EncoderLayer",
            states,
            encoder_layer_in_training,
            "in training, with a dropout that takes everything",
            SMALL,
            shown="EncoderLayer(…).train()(x)",
        ),
        Trial("Encoder", states, encoder, "all tokens real", SMALL, shown="Encoder(3, …)(x)"),
        Trial("Encoder", with_real, encoder, "some padding", SMALL, shown="Encoder(3, …)(x, real)"),
        Trial("Encoder", with_real, partial(encoder, layers=1), "one layer", SMALL, shown="Encoder(1, …)(x, real)"),
        Trial(
            "Encoder",
            with_real,
            encoder,
            "as many rows as tokens",
            {**SMALL, "B": 4, "T": 4},
            shown="Encoder(3, …)(x, real)",
        ),
    ),
    properties=(
        Property("dropout.missing", "Residual", dropout_acts, "dropout does not act in training", rejects=True),
        Property("parameters.identical", "Encoder", layers_differ, "layers start with the same numbers", rejects=True),
    ),
    mistakes=MISTAKES,
    hints=(
        "What must a residual give if the sub-layer gives zero? And what does layer 2 read?",
        "(B, S, D) throughout; real (B, S) becomes (B, 1, 1, S) once, for all layers.",
        "`self.norm(x + self.dropout(sublayer(x)))`; `lambda x: self.self_attention(x, x, may_attend)`; "
        "`nn.ModuleList(EncoderLayer(width, heads, hidden, dropout) for _ in range(layers))`",
    ),
    after="Stacks of any depth can be built. How much gradient reaches each layer of eight, before any training:",
    lab="norm-and-residual",
    ours="clearhead/model/residual.py",
    bug=Bug(
        "Encoder",
        ((LOOP, LOOP + "            may_attend = None\n"),),
        "Encoder(1, 8, 2, 16, 0.0)(x, real)  # with one layer padding changes nothing, as it should",
        "only the first layer hid the padding; with one layer, or without padding, nobody would notice",
    ),
    picture=picture,
)
