"""Before training, a model can only guess: its loss on random tokens is about ln V."""

import math

import torch
import torch.nn.functional as F

from clearhead.doctor.describe import Encoder
from clearhead.doctor.finding import NOTE, WARNING, Finding, NotArmed
from clearhead.doctor.subject import Subject
from clearhead.doctor.watch import Watch


def run(subject: Subject) -> list[Finding]:
    if isinstance(subject.spec, Encoder):
        raise NotArmed("an encoder's outputs need not be logits")
    losses = []
    for seed in range(2):
        logits = subject.whole(subject.raw(seed), subject.inputs(8, 13, seed=60 + seed)).double()
        labels = torch.randint(logits.size(-1), logits.shape[:2], generator=torch.Generator().manual_seed(seed))
        losses.append(float(F.cross_entropy(logits.flatten(0, 1), labels.flatten())))
    loss, guess = sum(losses) / 2, math.log(logits.size(-1))
    if loss - guess <= 1.0:
        return []
    message = f"the untrained loss is {loss:.2f}; guessing among {logits.size(-1)} tokens costs ln V = {guess:.2f}"
    tied = shares_embedding(subject)
    # how large a head starts is its author's choice, and weights may come from a checkpoint
    severity = NOTE if loss <= 2 * guess else WARNING
    return [Finding("initial.loss", severity, message, {"loss": loss, "guess": guess, "tied": tied})]


def shares_embedding(subject: Subject) -> bool:
    """Is the matrix that makes the logits one that tokens are looked up in?"""
    with Watch() as watch:
        subject.whole(subject.raw(), subject.inputs(2, 7))
    heads = [matrix.data_ptr() for matrix, out in watch.seen.projections if out.size(-1) >= subject.vocab]
    return bool(heads) and heads[-1] in {weight.data_ptr() for weight, _, _ in watch.seen.lookups}
