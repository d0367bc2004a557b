"""The random draws of a pass: how often each place of the code drops, and the same pass with every draw at its mean.

Dropout, whoever wrote it, is a Bernoulli draw divided by the probability of keeping. Replaced by its mean, the draw is
a one, and training mode computes what evaluation does. So the two can be compared without touching the model.
A draw that is compared with a number (`torch.rand_like(x) > p`) has no mean; but it can be made to keep everything,
and then the division by the probability of keeping must show.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.doctor.watch import own_line


@dataclass(frozen=True)
class Draw:
    """One Bernoulli draw: the probability of a zero, and the line that asked for it."""

    rate: float
    where: str


class Draws(TorchDispatchMode):
    """Notes every Bernoulli draw; with `at_mean`, each gives its mean instead of zeros and ones."""

    def __init__(self, at_mean: bool = False) -> None:
        super().__init__()
        self.at_mean = at_mean
        self.seen: list[Draw] = []
        self.certain = True  # a draw that the code may turn into a condition has no mean

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if name not in ("bernoulli", "bernoulli_", "native_dropout"):
            return func(*args, **kwargs)
        # bernoulli_(into, keep=0.5), bernoulli(chances), bernoulli(shape_of, keep), native_dropout(x, rate, train)
        given = args[1] if len(args) > 1 else kwargs.get("p", args[0] if name == "bernoulli" else 0.5)
        drops = name == "native_dropout"
        rate = float(given) if drops else 1 - float(torch.as_tensor(given).double().mean())
        if not drops or args[2]:
            self.seen.append(Draw(round(rate, 6), own_line()))
        if not self.at_mean:
            return func(*args, **kwargs)
        if drops:
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        self.certain = self.certain and name == "bernoulli_" and args[0].is_floating_point()
        return mean(args[0], given, in_place=name == "bernoulli_")


class Kept(Draws):
    """Draws at their mean; uniform numbers that are compared, and masks drawn by hand, let everything through."""

    def __init__(self, uniform: float) -> None:
        super().__init__(at_mean=True)
        self.uniform = uniform  # what every uniform number is: the lowest or the highest there is
        self.shapes: list[tuple[int, ...]] = []
        self.lines: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name.split("::")[1]
        if name not in ("rand", "rand_like", "uniform_", "uniform", "bernoulli"):
            return super().__torch_dispatch__(func, types, args, kwargs)
        out = func(*args, **(kwargs or {}))
        self.shapes.append(tuple(out.shape))
        self.lines.append(own_line())
        return out.fill_(1.0 if name == "bernoulli" else self.uniform)


class Told(TorchFunctionMode):
    """Notes every dropout that has a rate and is told not to act."""

    def __init__(self) -> None:
        super().__init__()
        self.off: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (F.dropout, torch.dropout):
            rate, training = bound(args, kwargs or {})
            if rate > 0 and not training:
                self.off.append(own_line())
        return func(*args, **(kwargs or {}))


class Callers(Draws):
    """Draws, and which modules they were made in: a dropout that was built, but never called."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.stack: list[nn.Module] = []
        self.called: set[nn.Module] = set()
        self.drew: set[nn.Module] = set()
        self.hooks: list[Any] = []

    def __enter__(self) -> "Callers":
        for module in self.model.modules():
            self.hooks.append(module.register_forward_pre_hook(lambda module, given: self.enter(module)))
            self.hooks.append(module.register_forward_hook(lambda module, given, out: self.leave(), always_call=True))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for hook in self.hooks:
            hook.remove()

    def enter(self, module: nn.Module) -> None:
        self.stack.append(module)
        self.called.add(module)

    def leave(self) -> None:
        self.stack.pop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = len(self.seen)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if len(self.seen) > before and self.stack:
            self.drew.add(self.stack[-1])
        return out

    def idle(self) -> list[str]:
        """Dropouts with a rate that were not called, in modules that were, and that drew nothing by themselves."""
        names = []
        for name, module in self.model.named_modules():
            owner = self.model.get_submodule(name.rpartition(".")[0]) if name else module
            unused = isinstance(module, nn.Dropout) and module.p > 0 and module not in self.called
            if unused and owner in self.called and owner not in self.drew:
                names.append(name)
        return names


def bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, bool]:
    """Rate and mode of a call of dropout(input, p=0.5, training=True)."""
    rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    mode = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return float(rate), bool(mode)


def mean(x: Tensor, keep: Any, in_place: bool) -> Tensor:
    """The mean of a draw that is one with probability `keep`, where the draw would have been put."""
    out = x if in_place else torch.empty_like(x)
    return out.copy_(keep) if isinstance(keep, Tensor) else out.fill_(keep)
