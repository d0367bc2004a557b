"""A small model that inference tries things on: calls written as code, and what they let each output see.

Everything here is measured in float32 on a shaken model in evaluation mode, with the same random numbers for every
call, so that even a model that is random in evaluation can be compared with itself.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.infer.builder import function
from clearhead.doctor.subject import shake

ROWS, LENGTH, TARGET = 3, 8, 6
VISIBLE = 2e-5  # of the outputs' spread


class Refused(Exception):
    """A call that raised or gave something that is no output."""


@dataclass(frozen=True)
class Sight:
    """What outputs see of one input: shares of the pairs (output, token) that are connected."""

    future: float
    past: float
    anything: float

    @property
    def causal(self) -> bool:
        return self.future == 0.0 and self.past > 0.9

    @property
    def leaning(self) -> bool:
        """Clearly meant to look back only, even if something of the future shows."""
        return self.past > 0 and self.future < 0.6 * self.past


class Trial:
    """Runs code on one model."""

    def __init__(self, model: nn.Module, vocab: int, names: dict[str, Any]) -> None:
        self.model = shake(model).eval()
        self.vocab, self.names = vocab, names
        self.calls: dict[str, Any] = {}
        self.problem: BaseException | None = None  # the first that a call raised
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Something seen on the way that explains a failure."""
        if text not in self.notes:
            self.notes.append(text)

    def tokens(self, length: int = LENGTH, rows: int = ROWS, seed: int = 1) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        low = 4 if self.vocab > 12 else 0
        return torch.randint(low, self.vocab, (rows, length), generator=generator)

    def other(self, tokens: Tensor) -> Tensor:
        low = 4 if self.vocab > 12 else 0
        return low + (tokens - low + 7) % (self.vocab - low)

    def run(self, code: str, *values: Any) -> Any:
        """Call the function that the code defines with the model and these values."""
        if code not in self.calls:
            self.calls[code] = function(code, self.names)
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                return self.calls[code](self.model, *values)
        except (Exception, SystemExit) as error:
            self.problem = self.problem or error
            raise Refused(str(error)) from error

    def output(self, code: str, *values: Any) -> Tensor:
        """A tensor of finite numbers, or Refused."""
        result = self.run(code, *values)
        if not isinstance(result, Tensor) or not result.is_floating_point():
            raise Refused(f"{type(result).__name__} is no output")
        if not bool(torch.isfinite(result).all()):
            raise Refused("outputs are not finite")
        return result.double()

    def moved(self, before: Tensor, after: Tensor) -> Tensor:
        """Which outputs (B, S) differ."""
        size = float(before.std()) or 1.0
        return (before - after).abs().amax(dim=-1) > VISIBLE * size

    def sight(self, code: str, values: tuple[Tensor, ...], which: int) -> Sight:
        """What the outputs see of input number `which`; outputs are (B, S, anything)."""
        before, seen = self.output(code, *values), []
        for place in range(values[which].size(1)):
            changed = [value.clone() for value in values]
            changed[which][:, place] = self.other(changed[which][:, place])
            seen.append(self.moved(before, self.output(code, *changed)).any(dim=0))
        pairs = torch.stack(seen, dim=1).float()  # (outputs, tokens)
        square = pairs.size(0) == pairs.size(1)
        ahead = torch.ones_like(pairs).triu(1).bool()
        future = float(pairs[ahead].mean()) if square else 0.0
        past = float(pairs[~ahead].mean()) if square else 0.0
        return Sight(future, past, float(pairs.mean()))

    def rows_apart(self, code: str, values: tuple[Tensor, ...]) -> tuple[bool, bool]:
        """(does changing row 0 reach other rows?, does it reach other places of row 0?)"""
        before, changed = self.output(code, *values), [value.clone() for value in values]
        changed[0][0, 0] = self.other(changed[0][0, 0])
        moved = self.moved(before, self.output(code, *changed))
        return bool(moved[1:].any()), bool(moved[0, 1:].any())
