"""The random draws of a pass: how often each place of the code drops, and the same pass with every draw at its mean.

Dropout, whoever wrote it, is a Bernoulli draw divided by the probability of keeping. Replaced by its mean, the draw is
a one, and training mode computes what evaluation does. So the two can be compared without touching the model.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
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


def mean(x: Tensor, keep: Any, in_place: bool) -> Tensor:
    """The mean of a draw that is one with probability `keep`, where the draw would have been put."""
    out = x if in_place else torch.empty_like(x)
    return out.copy_(keep) if isinstance(keep, Tensor) else out.fill_(keep)
