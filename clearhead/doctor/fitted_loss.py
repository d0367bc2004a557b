"""A loss that is no known form: fitted as a weighted sum of what losses are made of, which names what it weighs.

Over enough batches of one shape, any sum of negative log-likelihoods of the label, of all tokens and of padding, at
real and at padded places, has exactly one set of weights. Where a fit leaves nothing over, the weights are the loss:
padding that is asked for, a real token that is not, a smoothing that is none. What does not fit has other parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.doctor.candidate_losses import pairings

Weights = dict[str, float]  # of each part, for all real tokens of a batch together


@dataclass(frozen=True)
class FittedLoss:
    """What a loss weighs; all weights are totals, so that a mean over real tokens has a sum of one."""

    pairing: str
    weights: Weights
    pad: int | None
    vocab: int

    def of(self, part: str) -> float:
        return self.weights.get(part, 0.0)

    @property
    def total(self) -> float:
        return self.of("label") + self.of("all tokens") + self.of("padding as an answer")

    @property
    def share(self) -> float:
        """What part of the weight is spread over all tokens."""
        return (self.total - self.of("label")) / self.total if self.total else 0.0

    def ignored(self) -> int | None:
        """A real token whose places are not asked for."""
        for part, weight in self.weights.items():
            if part.startswith("label ") and abs(weight + self.of("label")) < 1e-3 * abs(self.of("label")):
                return int(part.split()[1])
        return None


def parts(outputs: Tensor, labels: Tensor, pad: int | None, ignorable: tuple[int, ...]) -> Weights:
    """The sums that a loss may be made of, divided by the number of real tokens."""
    logp = outputs.double().log_softmax(dim=-1).clamp(min=-1e30)
    labels = labels.clamp(0, logp.size(-1) - 1)
    right, spread = -logp.gather(-1, labels[..., None]).squeeze(-1), -logp.mean(dim=-1)
    real = labels != pad if pad is not None else torch.ones_like(labels, dtype=torch.bool)
    found = {"label": right[real].sum(), "all tokens": spread[real].sum(), "constant": torch.tensor(1.0)}
    if pad is not None:
        found |= {
            "padding as an answer": -logp[..., pad][real].sum(),
            "label of padding": right[~real].sum(),
            "all tokens at padding": spread[~real].sum(),
        }
    for token in ignorable:
        found |= {f"label {token}": right[labels == token].sum(), f"all at {token}": spread[labels == token].sum()}
    return {name: float(value) / int(real.sum()) for name, value in found.items()}


def fitted(
    values: list[float], logits: list[Tensor], tokens: list[Tensor], shift: int, pad: int | None,
    ignorable: tuple[int, ...], limit: float,
) -> Iterator[FittedLoss]:  # fmt: skip
    """Every pairing of outputs and labels under which the values are a weighted sum, the declared pairing first."""
    wanted = torch.tensor(values, dtype=torch.float64)
    by_pairing = [list(pairings(outputs, labels, shift)) for outputs, labels in zip(logits, tokens, strict=True)]
    for number, (pairing, _, _) in enumerate(by_pairing[0]):
        rows = [parts(*row[number][1:], pad, ignorable) for row in by_pairing]
        names = list(rows[0])
        table = torch.tensor([[row[name] for name in names] for row in rows], dtype=torch.float64)
        found = torch.linalg.lstsq(table, wanted[:, None], driver="gelsd").solution.flatten()
        if float((table @ found - wanted).abs().max()) < limit * max(1.0, float(wanted.abs().max())):
            yield FittedLoss(pairing, dict(zip(names, found.tolist(), strict=True)), pad, logits[0].size(-1))
