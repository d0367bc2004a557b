"""Watching a model from inside its operations: which softmax, over what, on which line, in which precision.

A dispatch mode sees every operation below Python, whoever called it: a written-out softmax, `nn.functional`, a
fused kernel. It is used only for what inputs and outputs cannot show. A function mode adds a zero that can be
differentiated to the token embedding, so that the influence of each token is a gradient.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.doctor.raised import line, theirs


def own_line() -> str:
    """The innermost line of the caller's code: not of torch, nor of the doctor."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if theirs(frame.f_code.co_filename):
            return line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


@dataclass
class Softmax:
    """One attention-like softmax: what went in, along which axis it summed, what came out."""

    scores: Tensor
    dim: int
    weights: Tensor
    where: str
    order: int

    def maps(self, queries: int, keys: int, spare: bool = False) -> tuple[Tensor, Tensor] | None:
        """Scores and weights as (N, queries, keys), whatever the layout; None where the sizes do not fit.

        With `spare`, there may be more keys than that: those of a cache's empty places.
        """
        if tuple(self.scores.shape[-2:]) == (queries, keys):
            return self.scores.reshape(-1, queries, keys), self.weights.reshape(-1, queries, keys)
        last = self.dim == self.scores.dim() - 1
        if spare and last and self.scores.size(-2) == queries and self.scores.size(-1) > keys > 2:
            return self.in_use(queries, keys)
        if self.scores.size(self.dim) != keys:
            return None
        # heads or rows may come last: the softmax says where the keys are
        axes = [axis for axis in range(self.scores.dim()) if axis != self.dim and self.scores.size(axis) == queries]
        if not axes:
            return None
        turned = [x.movedim((axes[0], self.dim), (-2, -1)) for x in (self.scores, self.weights)]
        return turned[0].reshape(-1, queries, keys), turned[1].reshape(-1, queries, keys)

    def in_use(self, queries: int, keys: int) -> tuple[Tensor, Tensor] | None:
        """The same without the empty places of a cache, which look alike to all queries; None if others are left."""
        scores, weights = (x.reshape(-1, queries, x.size(-1)) for x in (self.scores, self.weights))
        used = (scores != scores[:, :1]).any(dim=1).any(dim=0)
        return (scores[..., used], weights[..., used]) if int(used.sum()) == keys else None


@dataclass
class Fused:
    """One call of a fused attention kernel."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    causal: bool
    scale: float | None
    where: str

    def scores(self) -> Tensor:
        """The scores the kernel hides, with what a floating mask adds to them (ALiBi comes that way)."""
        groups = self.query.size(1) // self.key.size(1) if self.query.dim() == 4 else 1
        key = self.key.repeat_interleave(groups, dim=1) if groups > 1 else self.key
        scale = self.scale if self.scale is not None else self.query.size(-1) ** -0.5
        scores = self.query @ key.transpose(-2, -1) * scale
        if self.mask is None or not self.mask.is_floating_point():
            return scores
        return scores + self.mask

    def visible(self) -> Tensor:
        """Where the kernel may look, (rows and heads, queries, keys)."""
        queries, keys = self.query.size(-2), self.key.size(-2)
        seen = torch.ones(1, queries, keys, dtype=torch.bool)
        if self.causal:
            seen = seen.tril()
        if self.mask is None:
            return seen
        mask = self.mask.expand(*self.mask.shape[:-2], queries, keys).reshape(-1, queries, keys)
        return seen & (mask if mask.dtype == torch.bool else mask > -1e3)


@dataclass
class Product:
    """One batched matrix product."""

    left: Tensor
    right: Tensor
    out: Tensor
    where: str
    order: int


@dataclass
class Seen:
    """What was seen during one pass."""

    softmaxes: list[Softmax] = field(default_factory=list)
    fused: list[Fused] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    scalings: list[tuple[Tensor, float, str]] = field(default_factory=list)  # input, factor, line
    lookups: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)  # weight, indices, result
    projections: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # matrix, result
    dtypes: set[torch.dtype] = field(default_factory=set)
    dropouts: list[str] = field(default_factory=list)
    touched: bool = False  # did the tensor of interest enter any operation?

    def scores(self) -> list[tuple[Tensor, str]]:
        """The scores of every attention, in order: (B, H, S, T) or (B·H, S, T), before or after its mask."""
        plain = [(softmax.scores, softmax.where) for softmax in self.softmaxes]
        return plain + [(call.scores(), call.where) for call in self.fused]

    def maps(self, queries: int, keys: int) -> list[tuple[Tensor, str]]:
        """The scores of every attention of that size, (N, queries, keys), whatever the layout."""
        plain = [
            (found[0], s.where) for s in self.softmaxes if (found := s.maps(queries, keys, spare=True)) is not None
        ]
        calls = [call for call in self.fused if (call.query.size(-2), call.key.size(-2)) == (queries, keys)]
        return plain + [(call.scores().reshape(-1, queries, keys), call.where) for call in calls]

    def hidden(self, queries: int, keys: int) -> list[Tensor]:
        """What the masks of every attention of that size hide, (rows and heads, queries, keys)."""
        plain = [found for s in self.softmaxes if (found := s.maps(queries, keys)) is not None]
        calls = [call for call in self.fused if (call.query.size(-2), call.key.size(-2)) == (queries, keys)]
        return [(scores < -1e3) | weights.eq(0) for scores, weights in plain] + [~call.visible() for call in calls]

    def looks(self, queries: int, keys: int) -> list[tuple[Tensor, str]]:
        """Where every attention of that size looks, (rows and heads, queries, keys)."""
        plain = [(found[1].ne(0), s.where) for s in self.softmaxes if (found := s.maps(queries, keys)) is not None]
        calls = [call for call in self.fused if (call.query.size(-2), call.key.size(-2)) == (queries, keys)]
        return plain + [(call.visible(), call.where) for call in calls]


def number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point():
        return float(value)
    return None


class Watch(TorchDispatchMode):
    """Fills a `Seen` while a model runs. Keeps every tensor it mentions alive, so that none is mistaken for another."""

    def __init__(self, of_interest: Tensor | None = None) -> None:
        super().__init__()
        self.seen = Seen()
        self.of_interest = of_interest
        self.order = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.split("::")[1]
        if self.of_interest is not None and any(item is self.of_interest for item in args):
            self.seen.touched = True
        if isinstance(out, Tensor) and out.is_floating_point() and out.dim() > 0:
            self.seen.dtypes.add(out.dtype)
        self.note(name, args, kwargs, out)
        return out

    def note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        seen = self.seen
        self.order += 1
        if name in ("_softmax", "_safe_softmax") and args[0].dim() >= 3:
            axis = args[1] % args[0].dim()
            seen.softmaxes.append(Softmax(args[0].clone(), axis, out.clone(), own_line(), self.order))
        elif name in ("exp", "exp_") and out.dim() >= 3:
            # a softmax written out; what its sums run over shows where the weights are used
            scores = args[0].clone() if name == "exp" else out.log()
            seen.softmaxes.append(Softmax(scores, out.dim() - 1, out.clone(), own_line(), self.order))
        elif name.startswith("_scaled_dot_product") and "backward" not in name and "math" not in name:
            seen.fused.append(fused(args, kwargs))
        elif name in ("bmm", "baddbmm"):
            left, right = args[-2:]
            seen.products.append(Product(left, right, out.clone(), own_line(), self.order))
            if left.size(0) == 1:  # as einsum runs a linear map
                seen.projections.append((right, out))
        elif name in ("mm", "addmm"):
            seen.projections.append((args[-1], out))
        elif name == "embedding":
            seen.lookups.append((args[0], args[1], out))
        elif name == "index" and args[0].dim() == 2 and len(args[1]) == 1:
            seen.lookups.append((args[0], args[1][0], out))
        elif name in ("mul", "div") and len(args) > 1:
            factor = number(args[1])
            if factor is not None and factor != 0:
                seen.scalings.append((args[0], factor if name == "mul" else 1 / factor, own_line()))
        elif name in ("native_dropout", "bernoulli", "bernoulli_"):
            seen.dropouts.append(own_line())


def fused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fused:
    """Read a fused call: the kernels differ in the order of what follows query, key and value."""
    rest = list(args[3:])
    mask = kwargs.get("attn_mask", kwargs.get("attn_bias"))
    mask = next((item for item in rest if isinstance(item, Tensor)), mask)
    flags = [item for item in rest if isinstance(item, bool)]
    causal = kwargs.get("is_causal", flags[-1] if flags else False)
    numbers = [item for item in rest if isinstance(item, float)]
    dropout = kwargs.get("dropout_p", numbers[0] if numbers else 0.0)
    return Fused(args[0], args[1], args[2], mask, dropout, causal, kwargs.get("scale"), own_line())


class Still(TorchDispatchMode):
    """Dropout of every kind lets everything through: a module's, a functional one's, that of a fused kernel.

    Nothing in the model is changed for it. A mask drawn from Bernoulli is replaced by what it is on average, which
    dividing by the probability to keep turns into ones.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        chance = number(args[1]) if name in ("bernoulli", "bernoulli_") and len(args) > 1 else None
        # a probability below one half is no dropout: tokens to be masked out are drawn that way
        if chance is not None and chance >= 0.5:
            return args[0].fill_(chance) if name == "bernoulli_" else torch.full_like(args[0], chance)
        if name == "bernoulli" and chance is None and bool((args[0] >= 0.5).all()):
            return args[0].clone()
        if name.startswith("_scaled_dot_product") and "backward" not in name:
            args = tuple(0.0 if isinstance(item, float) else item for item in args)
            kwargs = {key: 0.0 if key == "dropout_p" else value for key, value in kwargs.items()}
        return func(*args, **kwargs)


class Nudge(TorchFunctionMode):
    """Adds a zero with a gradient, or noise of some size, to the embedding of the given tokens."""

    def __init__(self, tokens: Tensor, size: float = 0.0) -> None:
        super().__init__()
        self.tokens = tokens
        self.size = size
        self.zero: Tensor | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        wanted = self.zero is None and (self.size > 0 or torch.is_grad_enabled())
        if wanted and func in (torch.nn.functional.embedding, torch.embedding, Tensor.__getitem__):
            indices = args[0] if func is torch.nn.functional.embedding else args[1]
            same = isinstance(indices, Tensor) and indices.shape == self.tokens.shape
            if same and out.dim() == 3 and bool((indices == self.tokens).all()):
                generator = torch.Generator().manual_seed(2)
                noise = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
                self.zero = (self.size * noise).requires_grad_()
                return out + self.zero
        return out
