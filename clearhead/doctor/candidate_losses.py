"""What a training loss could be computing: the declared loss, other readings in use, and the usual mistakes.

The doctor computes every candidate from the model's own outputs and sees which one the loss really equals. That
names a mistake instead of only noticing it. A candidate is a pairing of outputs with labels, a target distribution
for each label (smoothing comes in several forms), cross-entropy or Kullback-Leibler divergence, and a way to average;
what it can fall to at best on random labels follows from the same target distribution.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

OTHERS = ", over the other tokens"  # smoothing spread over V - 1 tokens: another reading, no mistake
REAL_OTHERS = ", over the other tokens but padding"  # over V - 2
LOOSE = ", as if over all tokens"  # each other token gets what it would if all V (or V - 1) shared: sums to less than 1
USUAL = (0.1, 0.05, 0.2, 0.01, 0.15, 0.3)  # tried where no smoothing is declared
REDUCED = {"mean": "real tokens", "sum": "no mean: a sum", "rows": "rows: a sum over each"}


@dataclass(frozen=True)
class Form:
    """What each label asks of the outputs: a target distribution in row y for label y."""

    smoothing: str
    targets: Tensor  # (V, V)
    everywhere: Tensor | None = None  # what is asked at ignored places too
    divergence: bool = False  # the entropy of the target is taken off

    def entropy(self) -> Tensor:
        return -torch.special.xlogy(self.targets, self.targets).sum(dim=-1)  # (V,)

    def floor(self, choices: Tensor) -> float:
        """The least mean loss where each label is one of `choices`, all equally likely and none foreseen."""
        targets = self.targets[choices]
        best = targets.mean(dim=0) / targets.mean(dim=0).sum()
        asked = -torch.special.xlogy(targets.mean(dim=0), best).sum()
        return float(asked - self.entropy()[choices].mean()) if self.divergence else float(asked)


@dataclass(frozen=True)
class CandidateLoss:
    """One reading of a loss: which label each output was compared with, and how the terms were averaged."""

    pairing: str
    average: str
    form: Form

    @property
    def smoothing(self) -> str:
        return self.form.smoothing

    def healthy(self, reduction: str | None) -> bool:
        declared = ("as declared", REDUCED[reduction or "mean"])
        return (self.pairing, self.average) == declared and self.smoothing.startswith("as declared")

    def floor(self, choices: Tensor, rows: int, labels: int) -> float:
        """The least value for a batch of so many rows and labels in each, without padding."""
        vocab = self.form.targets.size(0)
        terms = {"no mean": rows * labels, "rows: a sum": labels, "positions": rows, "all elements": 1 / vocab}
        factor = next((count for name, count in terms.items() if self.average.startswith(name)), 1)
        return self.form.floor(choices) * factor


def pairings(logits: Tensor, tokens: Tensor, shift: int, prefix: int = 0) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, logits, labels) for each way of putting them together; `shift` is the declared one.

    The first `prefix` tokens see each other, so they need not be predicted.
    """

    def shifted(by: int) -> tuple[Tensor, Tensor]:
        length = tokens.size(1)
        if by >= 0:
            return logits[:, : length - by], tokens[:, by:]
        return logits[:, -by:], tokens[:, :by]

    yield "as declared", *shifted(shift)
    if prefix > 1 and shift == 1:
        yield "as declared", logits[:, prefix - 1 : -1], tokens[:, prefix:]
    if shift == 1:
        yield "labels not shifted", *shifted(0)
        yield "labels not shifted", logits[:, :-1], tokens[:, :-1]  # where the last token is not fed
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
    # (B, S, V) as (B, V, S) by a view, as cross_entropy takes it: only the names of the axes change places
    yield "rows and positions swapped", right.reshape(len(right), -1, right.size(1)).transpose(1, 2), labels


def averages(terms: Tensor, real: Tensor, vocab: int) -> Iterator[tuple[str, Tensor]]:
    """Ways to bring (F, B, S) terms, zero where ignored, to one number for each form."""
    total, rows = terms.sum(dim=(1, 2)), terms.sum(dim=2)
    yield "real tokens", total / real.sum()
    yield "all positions", total / real.numel()
    yield "no mean: a sum", total
    yield "rows: a sum over each", total / terms.size(1)
    yield "positions: a sum over rows", total / terms.size(2)
    yield "rows: each row's mean weighs the same", (rows / real.sum(dim=1).clamp(min=1)).mean(dim=1)
    yield "all elements", total / (real.numel() * vocab)


def fitting_losses(
    value: float,
    limit: float,
    logits: Tensor,
    tokens: Tensor,
    shift: int,
    pad: int | None,
    smoothing: float,
    ignorable: tuple[int, ...] = (),
    prefix: int = 0,
) -> Iterator[CandidateLoss]:
    """Every candidate that gives `value` up to `limit`, the declared one first."""
    vocab = logits.size(-1)
    forms = known_forms(vocab, pad, smoothing)
    targets = torch.stack([form.targets for form in forms])
    everywhere = torch.stack(
        [t if (t := form.everywhere) is not None else torch.zeros_like(form.targets) for form in forms]
    )
    constant = torch.stack([form.entropy() if form.divergence else torch.zeros(vocab).double() for form in forms])
    for twice in (False, True):
        prepared = logits.softmax(dim=-1) if twice else logits
        for pairing, outputs, labels in pairings(prepared, tokens, shift, prefix):
            # a token without probability costs nothing where no target asks for it
            logp = outputs.double().log_softmax(dim=-1).clamp(min=-1e30)
            known = labels.clamp(0, vocab - 1)
            asked = -(targets[:, known] * logp).sum(dim=-1) - constant[:, known]  # (F, B, S)
            always = -(everywhere[:, known] * logp).sum(dim=-1)
            name = "softmax taken twice" if twice else pairing
            ignored_sets: list[tuple[str, Tensor]] = []
            real = labels != pad if pad is not None else torch.ones_like(labels, dtype=torch.bool)
            ignored_sets.append(("", real))
            if pad is not None:
                ignored_sets.append(("nothing ignored", torch.ones_like(real)))
            ignored_sets += [(f"token {token} ignored", labels != token) for token in ignorable]
            for ignored, kept in ignored_sets:
                keep = kept.double()
                for average, values in averages(asked * keep + always, keep, vocab):
                    label = f"{average}, {ignored}" if ignored else average
                    for number in ((values - value).abs() <= limit).nonzero().flatten().tolist():
                        yield CandidateLoss(name, label, forms[number])


def known_forms(vocab: int, pad: int | None, smoothing: float) -> list[Form]:
    """Every form of target, the declared one first: readings of smoothing that are in use, then mistakes."""
    one, even = torch.eye(vocab).double(), torch.full((vocab, vocab), 1 / vocab).double()
    if smoothing == 0:
        forms = [Form("as declared", one)]
        for amount in USUAL:
            said = f"{amount}, though none is declared"
            forms += [replace_name(form, said) for form in smoothed(vocab, pad, amount)]
        return forms
    return [
        *smoothed(vocab, pad, smoothing),
        Form("none", one),
        Form("over ignored tokens too", (1 - smoothing) * one, smoothing * even),
        Form("right term scaled, nothing spread", (1 - smoothing) * one),
        Form("added on top", one + smoothing * even),
    ]


def replace_name(form: Form, said: str) -> Form:
    return Form(form.smoothing.replace("as declared", said), form.targets, form.everywhere, form.divergence)


def smoothed(vocab: int, pad: int | None, smoothing: float) -> list[Form]:
    """Smoothing as papers and code bases do it: over all tokens, over the others, over the others but padding.

    Some leave out a share or two and sum to a little less than one; each also as a divergence, whose floor is zero
    for a label that is foreseen.
    """
    one = torch.eye(vocab).double()
    others = 1 - one
    spread = {
        "": torch.ones_like(one) / vocab,
        OTHERS: others / (vocab - 1),
        OTHERS + LOOSE: others / vocab,
    }
    if pad is not None:
        unpadded = others.clone()
        unpadded[:, pad] = 0
        spread[REAL_OTHERS] = unpadded / (vocab - 2)
        spread[REAL_OTHERS + LOOSE] = unpadded / (vocab - 1)
    forms = [Form("as declared" + how, (1 - smoothing) * one + smoothing * rest) for how, rest in spread.items()]
    return forms + [Form(form.smoothing + " (divergence)", form.targets, None, True) for form in forms]
