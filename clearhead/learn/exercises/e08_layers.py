"""What each token does alone: the feed-forward, and layer normalisation."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import Bug, Draw, Exercise, Misfit, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.layers import MISTAKES
from clearhead.learn.pictures import heat

WIDE = {"B": 2, "S": 5, "D": 12, "F": 10}
NORM = {"B": 2, "S": 5, "D": 12}
EQUAL = {"B": 3, "S": 3, "D": 3, "F": 3}
FORWARD, LAYER = "FeedForward", "LayerNorm"
SHOWN = {FORWARD: "FeedForward(width, hidden)(x)", LAYER: "LayerNorm(width)(x)"}


def built(run: Run, part: str) -> Any:
    sizes = (run.sizes.D, run.sizes.F) if part == FORWARD else (run.sizes.D,)
    return run.module(part, *sizes)


def forward(run: Run, x: Tensor) -> Any:
    return built(run, FORWARD)(x)


def forward_in_training(run: Run, x: Tensor) -> Any:
    return built(run, FORWARD).train()(x)


def normalise(run: Run, x: Tensor) -> Any:
    return built(run, LAYER)(x)


def vectors(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    if sizes.D < 2:
        raise ValueError("one feature has no variance")
    return (draw.normal(sizes.B, sizes.S, sizes.D, scale=2.0),)


def faint(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    """Of variance about 1e-6, which is where ε speaks."""
    return (vectors(sizes, draw)[0] / 2000,)


def constant(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    """One token among the others has the same number everywhere: its variance is zero."""
    (x,) = vectors(sizes, draw)
    x[0, 0] = 2.5
    return (x,)


def far_off(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    return (vectors(sizes, draw)[0] + 30,)


def normed(make: Any, what: str, gradients: bool = True, tolerance: float = 1e-5, sizes: Any = None) -> Trial:
    return Trial(LAYER, make, normalise, what, sizes or NORM, gradients, tolerance, shown=SHOWN[LAYER])


def fed(make: Any, what: str, sizes: Any = None) -> Trial:
    return Trial(FORWARD, make, forward, what, sizes or WIDE, shown=SHOWN[FORWARD])


def weights_fit(part: str) -> Any:
    def ask(run: Run) -> dict[str, Any] | None:
        try:
            built(run, part)
        except Misfit as misfit:
            return {"got": misfit.got}
        return None

    return ask


def all_used(part: str) -> Any:
    def ask(run: Run) -> dict[str, Any] | None:
        module = built(run, part)
        names, parameters = zip(*module.named_parameters(), strict=True)
        found = torch.autograd.grad(module(*vectors(run.sizes, run.draw())).sum(), parameters, allow_unused=True)
        unused = [name for name, x in zip(names, found, strict=True) if x is None or not x.any()]
        return {"parameters": unused} if unused else None

    return ask


def bends(run: Run) -> dict[str, Any] | None:
    """Is the map linear after all? Then the middle of two inputs gives the middle of the outputs."""
    module, x = built(run, FORWARD), vectors(run.sizes, run.draw())[0]
    y = run.draw(1).normal(*x.shape, scale=2.0)
    middle = (module(x) + module(y)) / 2
    return {"wide": True} if torch.allclose(module((x + y) / 2), middle, atol=1e-6) else None


def other_bend(run: Run) -> dict[str, Any] | None:
    """Right but for the bend: what `outer` is given, read off with a matrix that lets it through."""
    module = built(run, FORWARD)
    (x,) = vectors(Sizes({**run.sizes, "D": run.sizes.D}), run.draw())
    ours = built(Run(run.ours, run.ours, run.sizes, run.seed), FORWARD)
    if torch.allclose(module(x), ours(x), atol=1e-4):
        return None
    for one in (module, ours):
        one.outer.weight.data = torch.eye(run.sizes.D, run.sizes.F, dtype=torch.float64)
        one.outer.bias.data.zero_()
    hidden, got, right = module.inner(x), module(x)[..., : run.sizes.F], ours(x)[..., : run.sizes.F]
    # an increasing function of each number of the inner layer: in their order, the outputs never fall
    order = hidden.flatten().argsort()
    rising = bool((got.flatten()[order].diff() >= -0.3).all()) and not torch.allclose(got, right, atol=1e-4)
    alone = not torch.allclose(got, hidden, atol=1e-4)
    return {"rising": True} if rising and alone else None


def tokens_alone(run: Run) -> dict[str, Any] | None:
    """Does a token give the same alone and in company?"""
    module, x = built(run, LAYER), vectors(run.sizes, run.draw())[0]
    together = module(x)
    token = torch.allclose(module(x[:, :1]), together[:, :1], atol=1e-6)
    row = torch.allclose(module(x[:1]), together[:1], atol=1e-6)
    return None if token and row else {"tokens": not token, "rows": not row}


def moments(run: Run) -> dict[str, Any] | None:
    """With gain one and shift zero: is the mean 0, and the variance 1?"""
    module = built(run, LAYER)
    module.weight.data.fill_(1)
    module.bias.data.zero_()
    out = module(100 * vectors(run.sizes, run.draw())[0] + 300)
    mean, variance = out.mean(-1).abs().max().item(), out.var(-1, unbiased=False)
    off = (variance - 1).abs().max().item() > 1e-3
    return {"mean": mean > 1e-3, "variance": off} if mean > 1e-3 or off else None


def cancels(run: Run) -> dict[str, Any] | None:
    """The mean of squares less the square of the mean: in 32 bits, and far from zero, little is left of it."""
    module, ours = built(run, LAYER).float(), built(Run(run.ours, run.ours, run.sizes, run.seed), LAYER)
    x = vectors(run.sizes, run.draw())[0] + 2000
    return {} if (module(x.float()) - ours(x)).abs().max() > 0.02 else None


def by_torch(run: Run) -> dict[str, Any] | None:
    """Right, and torch's own norm is called? Then autograd has its name."""
    module, ours = built(run, LAYER), built(Run(run.ours, run.ours, run.sizes, run.seed), LAYER)
    (x,) = vectors(run.sizes, run.draw())
    if not all(torch.allclose(module(scale * x), ours(scale * x), atol=1e-6) for scale in (1.0, 1 / 2000)):
        return None
    steps = [step for step in (module(x.requires_grad_()).grad_fn,) if step is not None]
    for step in steps:
        steps += [before for before, _ in step.next_functions if before is not None and before not in steps]
    return {} if any("LayerNorm" in step.name() for step in steps) else None


def picture(parts: Mapping[str, Any]) -> str:
    draw = Draw(8)
    x = draw.normal(4, 12) * torch.tensor([[0.2], [1.0], [3.0], [1.0]]) + torch.tensor([[0.0], [2.0], [0.0], [-3.0]])
    with torch.no_grad():
        after = parts[LAYER](12).double()(x[None])[0]
    return heat(x, "before", "feature") + "\n" + heat(after, " after", "feature")


def of(part: str) -> tuple[Property, ...]:
    sizes = WIDE if part == FORWARD else NORM
    return (
        Property("parity.weights", part, weights_fit(part), "the parameters are not the constructor's", sizes=sizes),
        Property("parameters.unused", part, all_used(part), "some parameters are never used", sizes=sizes),
    )


EXERCISE = Exercise(
    name="layers",
    question="What does each token do alone?",
    about="Attention only mixes. What a token does with what it found, it does by itself: a wider layer, a bend "
    "(without which two matrices are one), and back. And since layers are stacked, each token's vector is brought "
    "back to mean 0 and variance 1 after each of them, so that numbers neither vanish nor explode; gain and shift "
    "are learned.",
    section="sections 3.3 and 3.1",
    shapes="""
    FeedForward(width D, hidden F): x (B, S, D) -> (B, S, D): `inner` to F, ReLU, `outer` back to D
    LayerNorm(width D): x (B, S, D) -> (B, S, D): over the D features of each token by itself
        (x - mean) / √(variance + ε) · weight + bias   with ε = 1e-5, and the variance divided by D, not D - 1
    Both constructors are given. x itself stays as it is; gradients flow through mean and variance too.
    A token whose features are all equal has variance 0: it gives `bias`.
    """,
    parts=(FORWARD, LAYER),
    trials=(
        fed(vectors, ""),
        fed(vectors, "all sizes alike", EQUAL),
        Trial(FORWARD, vectors, forward_in_training, "in training", WIDE, gradients=False, shown=SHOWN[FORWARD]),
        normed(vectors, "", gradients=False),
        normed(vectors, ""),
        normed(vectors, "all sizes alike", sizes=EQUAL),
        normed(faint, "variance about 1e-6"),
        normed(constant, "one token of equal features"),
        normed(far_off, "a mean of 30", tolerance=1e-4),
    ),
    properties=(
        *of(FORWARD),
        Property("bend.missing", FORWARD, bends, "the map is linear", sizes=WIDE),
        Property("layers.bend", FORWARD, other_bend, "the bend is another than ReLU's", sizes={**WIDE, "F": 10}),
        *of(LAYER),
        Property("layers.company", LAYER, tokens_alone, "a token gives something else in company", sizes=NORM),
        Property("layers.moments", LAYER, moments, "mean or variance are not 0 and 1", sizes=NORM),
        Property(
            "remark.cancels",
            LAYER,
            cancels,
            "the variance as a mean of squares less the square of the mean is right, but in 32 bits little is left of "
            "it where the mean is large; (x - mean)² keeps its digits",
            sizes=NORM,
        ),
        Property(
            "remark.by-torch",
            LAYER,
            by_torch,
            "right, and torch's own layer norm does it: written out, it would be yours",
            sizes=NORM,
        ),
    ),
    mistakes=MISTAKES,
    hints=(
        "What are two linear maps in a row without a bend? And over which dimension is a token's mean?",
        "FeedForward: (B, S, D), (B, S, F), (B, S, D). LayerNorm: mean and variance are (B, S, 1).",
        "`self.outer(self.inner(x).relu())`; `(x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias` with "
        "`keepdim=True`",
    ),
    after="You have both halves of a layer. Four tokens of different size and mean, before and after your norm:",
    lab="feed-forward-ratio",
    ours="clearhead/model/norm.py",
    picture=picture,
    bug=Bug(
        LAYER,
        (("variance + 1e-5", "variance + 1e-12"),),
        "LayerNorm(4)(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]))  # mean 0, variance 1, as it should be",
        "ε was 1e-12: nobody sees it until a token's features are nearly equal; then noise is blown up to variance 1",
    ),
)
