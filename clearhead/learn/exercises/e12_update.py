"""The Noam schedule, and one update of the weights."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.learn.exercise import Bug, Draw, Exercise, Run, Sizes, Trial
from clearhead.learn.mistakes.update import MISTAKES, RATE

PARAMETERS = "(gradient, rate, max_norm)"


class Slope(nn.Module):
    """Two parameters, in a group of the optimizer each, whose loss has the gradient that it is told to have."""

    def __init__(self, gradient: Tensor) -> None:  # (5,)
        super().__init__()
        self.first = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.second = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.gradient = gradient

    def loss(self) -> Tensor:
        return (torch.cat((self.first, self.second)) * self.gradient).sum()


def after(updates: int, momentum: float = 0.0) -> Callable[..., Any]:
    """Where so many updates by gradient descent take the two parameters."""

    def call(run: Run, gradient: Tensor, rate: float, max_norm: float) -> list[Tensor]:
        model = Slope(gradient)
        groups: list[dict[str, Any]] = [{"params": [model.first]}, {"params": [model.second], "lr": 0.3}]
        optimizer = torch.optim.SGD(groups, lr=0.2, momentum=momentum)
        for number in range(updates):
            run.update(model, optimizer, model.loss(), rate / (number + 1), max_norm)
        return [torch.cat((model.first, model.second)).detach()]

    return call


def gradient(length: float, rate: float, max_norm: float) -> Callable[[Sizes, Draw], tuple[Any, ...]]:
    """A gradient of five numbers with this length."""
    numbers = torch.tensor([3.0, -4.0, 0.0, 12.0, -84.0], dtype=torch.float64) / 85  # of length one
    return lambda sizes, draw: (numbers * length, rate, max_norm)


def at(step: int, width: int, warmup: int, factor: float = 1.0) -> Trial:
    return Trial("noam", lambda sizes, draw: (step, width, warmup, factor), sizes={}, gradients=False)


def updates(count: int, what: str, length: float, rate: float, max_norm: float, momentum: float = 0.0) -> Trial:
    shown = (
        f"{'update' if count == 1 else f'{count} times update'}(model, optimizer, loss, rate, max_norm)   {PARAMETERS}"
    )
    make = gradient(length, rate, max_norm)
    return Trial("update", make, after(count, momentum), what, sizes={}, gradients=False, shown=shown)


def picture(parts: Mapping[str, Any]) -> str:
    """The rate over 40 updates, as columns of eighths."""
    rates = [parts["noam"](step, 64, 10) for step in range(1, 61)]
    rows = []
    for row in range(5, -1, -1):
        filled = [min(8, max(0, round(8 * (6 * rate / max(rates) - row)))) for rate in rates]
        rows.append("".join(" ▁▂▃▄▅▆▇█"[eighths] for eighths in filled))
    return "\n".join([*rows, f"update 1 to 60, warm-up 10; highest {max(rates):.4f}"])


EXERCISE = Exercise(
    name="update",
    question="How far, and when?",
    about="At the start Adam knows nothing of the gradients yet and large steps do harm, so the rate rises in a line "
    "for some updates (the warm-up) and then falls as 1/√step. An update goes down the gradient of its own loss and "
    "of no other; a gradient that is longer than max_norm is cut to that length, all parameters taken together.",
    section="section 5.3",
    shapes="""
    noam: step (from 1), width, warmup, factor -> a number:
        factor · width^−0.5 · min(step^−0.5, step · warmup^−1.5)
    update: model, optimizer, loss (a tensor of one number), rate, max_norm -> nothing; the weights have moved
        every group of the optimizer takes its step at this rate
        the length of a gradient is the root of the sum of the squares of all its numbers, over all parameters
        gradients of earlier updates must not count (clear them before or after, as you like)
    """,
    parts=("noam", "update"),
    trials=(
        at(1, 16, 4),
        at(4, 16, 4),
        at(16, 16, 4),
        at(2, 64, 100),
        at(100, 64, 100, 2.0),
        at(400, 100, 100, 0.5),
        updates(1, "one update, a short gradient", 0.5, 0.1, 1.0),
        updates(1, "one update, a long gradient", 10.0, 0.1, 1.0),
        updates(1, "one update, max_norm 3", 10.0, 0.1, 3.0),
        updates(2, "two updates, short gradients", 0.5, 0.1, 2.0),
        updates(3, "three updates, long gradients", 10.0, 0.1, 1.0),
        updates(3, "three updates by an optimizer with momentum", 0.5, 0.1, 2.0, 0.5),
    ),
    mistakes=MISTAKES,
    hints=(
        "Whose gradients are these when backward has run? And at which step do the two branches of the rate meet?",
        "noam gives a number; the gradient's length is one number for all parameters.",
        "`factor * width**-0.5 * min(step**-0.5, step * warmup**-1.5)`; set `lr` of every group, then zero_grad, "
        "backward, `nn.utils.clip_grad_norm_(model.parameters(), max_norm)`, step",
    ),
    after="A model can now be moved in the right direction, by the right amount. Your schedule:",
    lab="warm-up",
    ours="clearhead/training/schedule.py",
    allowed="torch, torch.nn.utils, optimizers of torch; not torch.optim.lr_scheduler",
    bug=Bug(
        "update",
        ((RATE, '    optimizer.param_groups[0]["lr"] = rate\n'),),
        "update(model, torch.optim.SGD(model.parameters(), lr=1.0), loss, 0.1)  # one group: moves as it should",
        "only the first group of the optimizer got the rate; with one group nobody would notice",
    ),
    picture=picture,
)
