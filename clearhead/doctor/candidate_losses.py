"""What a training loss could be computing: the declared loss and its usual mistakes, each as a formula.

The doctor computes every candidate from the model's own outputs and sees which one the loss really equals. That
names a mistake instead of only noticing it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

OTHERS = ", over the other tokens"  # smoothing spread over V - 1 tokens: another reading, no mistake


@dataclass(frozen=True)
class CandidateLoss:
    """One reading of a loss: which label each output was compared with, and how the terms were averaged."""

    pairing: str
    average: str
    smoothing: str
    value: float

    @property
    def healthy(self) -> bool:
        declared = ("as declared", "real tokens", "as declared")
        return (self.pairing, self.average, self.smoothing.removesuffix(OTHERS)) == declared


def pairings(logits: Tensor, tokens: Tensor, shift: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, logits, labels) for each way of putting them together; `shift` is the declared one."""

    def shifted(by: int) -> tuple[Tensor, Tensor]:
        length = tokens.size(1)
        if by >= 0:
            return logits[:, : length - by], tokens[:, by:]
        return logits[:, -by:], tokens[:, :by]

    yield "as declared", *shifted(shift)
    if shift == 1:
        yield "labels not shifted", *shifted(0)
        yield "labels shifted twice", *shifted(2)
        yield "labels shifted backwards", *shifted(-1)
        yield "labels rolled around", logits, tokens.roll(-1, dims=1)
        yield "last output dropped", logits[:, :-2], tokens[:, 1:-1]
    else:
        yield "labels shifted", *shifted(1)
    right, labels = shifted(shift)
    swapped = right.transpose(0, 1).reshape(right.shape)
    yield "rows and positions swapped", swapped, labels
    yield "rows and positions swapped", right, labels.t().reshape(labels.shape)


def averages(terms: Tensor, real: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Ways to bring (B, S) terms, zero where ignored, to one number."""
    yield "real tokens", terms.sum() / real.sum()
    yield "all positions", terms.sum() / real.numel()
    yield "no mean: a sum", terms.sum()
    yield "rows: a sum over each", terms.sum() / terms.size(0)
    yield "positions: a sum over rows", terms.sum() / terms.size(1)
    yield "rows: each row's mean weighs the same", (terms.sum(dim=1) / real.sum(dim=1).clamp(min=1)).mean()


def enumerate_losses(
    logits: Tensor, tokens: Tensor, shift: int, pad: int | None, smoothing: float, ignorable: tuple[int, ...] = ()
) -> Iterator[CandidateLoss]:
    """Every candidate, the declared one first."""
    for twice in (False, True):
        prepared = logits.softmax(dim=-1) if twice else logits
        for pairing, outputs, labels in pairings(prepared, tokens, shift):
            logp = outputs.double().log_softmax(dim=-1)
            vocab = logp.size(-1)
            right = -logp.gather(2, labels.clamp(0, vocab - 1)[..., None]).squeeze(2)
            spread = -logp.mean(dim=-1)
            others = (-logp.sum(dim=-1) - right) / (vocab - 1)
            name = "softmax taken twice" if twice else pairing
            ignored_sets: list[tuple[str, Tensor]] = []
            real = labels != pad if pad is not None else torch.ones_like(labels, dtype=torch.bool)
            ignored_sets.append(("", real))
            if pad is not None:
                ignored_sets.append(("nothing ignored", torch.ones_like(real)))
            ignored_sets += [(f"token {token} ignored", labels != token) for token in ignorable]
            for ignored, kept in ignored_sets:
                keep = kept.double()
                for smooth, terms in smoothings(right, spread, others, keep, smoothing).items():
                    for average, value in averages(terms, keep):
                        label = f"{average}, {ignored}" if ignored else average
                        yield CandidateLoss(name, label, smooth, float(value))


def smoothings(right: Tensor, spread: Tensor, others: Tensor, keep: Tensor, smoothing: float) -> dict[str, Tensor]:
    """The terms of a smoothed loss; three readings of smoothing are in use, and all three are accepted."""
    terms = {"as declared": ((1 - smoothing) * right + smoothing * spread) * keep}
    if smoothing > 0:
        terms["as declared" + OTHERS] = ((1 - smoothing) * right + smoothing * others) * keep
        terms["none"] = right * keep
        terms["over ignored tokens too"] = (1 - smoothing) * right * keep + smoothing * spread
        terms["right term scaled, nothing spread"] = (1 - smoothing) * right * keep
        terms["added on top"] = (right + smoothing * spread) * keep
    else:
        terms["0.1, though none is declared"] = (0.9 * right + 0.1 * spread) * keep
    return terms
