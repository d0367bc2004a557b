"""More padding and another order of the rows change neither the loss nor its gradient; the source does change it."""

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.probes.loss import batch_of, paddings
from clearhead.doctor.subject import Subject


def loss_and_gradient(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[float, Tensor]:
    model.zero_grad()
    result = subject.loss(model, batch)
    result.backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return float(result.detach()), torch.cat(gradients).double()


def run(subject: Subject) -> list[Finding]:
    if subject.spec.loss is None:
        raise NotArmed("no loss() described")
    subject.require_exact()
    model = subject.without_dropout()
    batch = batch_of(subject, padded=True)
    value, gradient = loss_and_gradient(subject, model, batch)
    if abs(value) < 1e-12:
        raise NotArmed("the loss is zero, whatever it is asked")
    findings = []
    others = {"rows in another order": tuple(x.flip(0) for x in batch)}
    if subject.pad is not None:
        others["three more tokens of padding"] = tuple(
            torch.cat([x, torch.full((x.size(0), 3), pad)], dim=1)
            for x, pad in zip(batch, paddings(subject, batch), strict=True)
        )
    limit = 1e-6 if subject.dtype == torch.float64 else 1e-3
    for name, other in others.items():
        other_value, other_gradient = loss_and_gradient(subject, model, other)
        turned = float((other_gradient - gradient).norm() / gradient.norm().clamp(min=1e-30))
        off = max(abs(other_value - value) / abs(value), turned)
        if off > limit and not (subject.spec.coupled and name.startswith("rows")):
            message = (
                f"with {name} the loss goes from {value:.6f} to {other_value:.6f}; "
                f"it or its gradient is off by {show(off)}"
            )
            findings.append(Finding("invariance.changes", ERROR, message, {"case": name}))
    if isinstance(subject.spec, EncoderDecoder):
        changed = (subject.other(batch[0]), batch[1])
        if abs(loss_and_gradient(subject, model, changed)[0] - value) <= limit * abs(value):
            message = f"another source leaves the loss at {value:.6f}: it never reads the source"
            findings.append(Finding("invariance.source", ERROR, message, {}))
    return findings
