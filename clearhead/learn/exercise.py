"""What an exercise is made of. All of it is data: what is asked, how it is tried, and how it usually goes wrong.

The learner writes *parts*, functions or classes that are cut out of the one file. A *trial* calls a part, ours and the
learner's, with the same arguments, and wants the same values and gradients. A *property* asks what no single value
shows, in the doctor's words. A *mistake* is our own part with a few characters changed: what the learner's part returns
is compared with what each mistake would have returned, and the one that agrees is the likely cause.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

# distinct, so that no two axes agree by accident; D = H·d. `padded` says whether a row of a batch has padding.
SIZES = {"B": 2, "S": 5, "T": 7, "H": 3, "d": 4, "F": 10, "V": 13, "padded": 1}


class Sizes(dict[str, int]):
    """Sizes by their letters: `sizes.B`. D is H·d unless it is given."""

    def __getattr__(self, letter: str) -> int:
        if letter == "D" and "D" not in self:
            return self["H"] * self["d"]
        try:
            return self[letter]
        except KeyError:
            raise AttributeError(letter) from None


class Draw:
    """Random arguments, the same for the same seed, and with one decimal, so that they can be read."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=self.random, dtype=torch.float64) * scale * 10).round() / 10

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.random)

    def real(self, sizes: Sizes) -> Tensor:
        """(B, T), True at real tokens: the last row lacks one in the middle and one at the end, unless told not to."""
        real = torch.ones(sizes.B, sizes.T, dtype=torch.bool)
        if sizes.padded and sizes.T > 1:
            real[-1, -1] = False
            if sizes.T > 3:
                real[-1, sizes.T // 2] = False
        return real


class Misfit(Exception):
    """An output has not the shape it should have, or a module not its parameters."""

    def __init__(self, got: str, wanted: str, parameters: bool = False) -> None:
        super().__init__(f"got {got}, wanted {wanted}")
        self.got, self.wanted, self.parameters = got, wanted, parameters


def broadcast(x: Any, *shape: int) -> Tensor:
    """A tensor that may have this shape or broadcast to it."""
    if not isinstance(x, Tensor):
        raise Misfit(type(x).__name__, f"a tensor {shape}")
    try:
        return x.expand(shape)
    except RuntimeError:
        raise Misfit(f"shape {tuple(x.shape)}", f"what broadcasts to {shape}") from None


@cache
def random_state(module: Any, arguments: tuple[Any, ...], seed: int, spread: float) -> dict[str, Tensor]:
    """Parameters for a module of this kind and these sizes."""
    draw = Draw(seed)
    return {key: draw.normal(*value.shape, scale=spread) for key, value in module(*arguments).state_dict().items()}


class Run:
    """One implementation of all parts, as trials call it: `run.attention(q, k, v)`, `run.module("FeedForward", 4, 8)`.

    A module gets random parameters, biases and gains too, the same ones for every implementation; it is in evaluation.
    """

    def __init__(self, parts: Mapping[str, Any], ours: Mapping[str, Any], sizes: Sizes, seed: int = 0) -> None:
        self.parts, self.ours, self.sizes, self.seed = parts, ours, sizes, seed
        self.modules: dict[str, torch.nn.Module] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.parts[name]
        except KeyError:
            raise AttributeError(name) from None

    def draw(self, seed: int = 0) -> Draw:
        return Draw(self.seed + 1000 + seed)

    def module(self, name: str, *arguments: Any, spread: float = 0.5) -> Any:
        built = self.parts[name](*arguments).double()
        state = random_state(self.ours[name], arguments, self.seed + 77, spread)
        found = set(built.state_dict())
        if found != set(state):
            extra, missing = sorted(found - set(state)), sorted(set(state) - found)
            said = [f"not {', '.join(extra[:3])}"] * bool(extra) + [f"without {', '.join(missing[:3])}"] * bool(missing)
            got = f"{name} {' and '.join(said).replace('not ', 'with ')}"
            raise Misfit(got, f"the parameters {sorted(state)[:6]}", parameters=True)
        built.load_state_dict(state)
        self.modules[name if name not in self.modules else f"{name} {len(self.modules) + 1}"] = built
        return built.eval()


Make = Callable[[Sizes, Draw], tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Trial:
    """A call of a part, the same for ours and the learner's, that must give the same."""

    part: str
    make: Make  # the arguments, from sizes and chance
    call: Callable[..., Any] | None = None  # call(run, *arguments); unless given, the part itself with the arguments
    what: str = ""  # the situation, in a few words: "scores of 800"
    sizes: Mapping[str, int] = field(default_factory=lambda: SIZES)
    gradients: bool = True
    tolerance: float = 1e-5
    kind: str = "values"  # what it means if the values are wrong here: "values", or "unstable"
    shown: str = ""  # how the call is written, if not as part(argument, …)


@dataclass(frozen=True)
class Property:
    """A question in the doctor's words; the evidence if it does not hold, and None if it does."""

    finding: str  # the doctor's id: probe.what
    part: str
    ask: Callable[[Run], dict[str, Any] | None]
    message: str  # what it means, in a sentence
    rejects: bool = False  # whether a part that violates nothing but this is wrong
    sizes: Mapping[str, int] = field(default_factory=lambda: SIZES)


@dataclass(frozen=True)
class Mistake:
    """A cause, and how a part looks that has it: ours with changes to its text, or another text altogether."""

    id: str  # the doctor's where it has this cause
    part: str
    say: str  # what is likely wrong, in a sentence, without giving the line away
    changes: tuple[tuple[str, str], ...] = ()  # (old, new), each found exactly once in the text of our part
    text: str = ""  # or: the whole part as this mistake would write it
    where: str = ""  # a pattern: the line of the learner's part to point at
    fits: Callable[[Mapping[str, dict[str, Any]]], float] | None = None  # or: from findings (id: evidence) to 0 … 1


@dataclass(frozen=True)
class Bug:
    """Find the bug: our file with one silent bug, and an example that hides it."""

    part: str
    changes: tuple[tuple[str, str], ...]
    harmless: str  # a line of Python that the bug does not touch, and what it gives, to print in the file
    say: str  # what it was, told when it is found


@dataclass(frozen=True, eq=False)
class Exercise:
    """One concept, one file."""

    name: str
    question: str
    about: str  # two or three sentences: what and why
    section: str  # of the paper
    shapes: str
    parts: tuple[str, ...]  # what the learner writes, in order
    trials: tuple[Trial, ...]
    mistakes: tuple[Mistake, ...]
    hints: tuple[str, str, str]  # a question, the shapes, the line
    after: str  # what has just become possible
    lab: str  # the experiment that tests the claim
    ours: str  # where it stands in the package
    source: str = "transformer"  # or "bytepairs": the file it is cut from
    allowed: str = (
        "torch, torch.nn.functional, nn.Linear and helpers of your own; please not nn.Transformer and its "
        "layers, nn.MultiheadAttention or nn.LayerNorm, which are what you write"
    )
    properties: tuple[Property, ...] = ()
    given: tuple[str, ...] = ()  # kept whole: "Transformer.vectors"; constructors are, unless they are in `written`
    written: tuple[str, ...] = ()  # constructors that the learner writes: "Encoder.__init__"
    helpers: tuple[str, ...] = ()  # functions of our solution that the stub does not show
    bug: Bug | None = None
    picture: Callable[[Mapping[str, Any]], str] | None = None  # of the learner's own parts, as text, after passing
    seconds: float = 10.0  # of processor time that a check may take
