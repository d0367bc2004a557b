"""More padding and another order of the rows change neither the loss nor its gradient; the source does change it."""

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import Encoder, EncoderDecoder
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.probes.loss import batch_of, paddings
from clearhead.doctor.subject import Subject


def loss_and_gradient(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[float, Tensor]:
    model.zero_grad()
    result = subject.loss(model, batch)
    result.backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return float(result.detach()), torch.cat(gradients).double()


def unasked(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...], limit: float) -> list[Finding]:
    """Where all labels of a row are to be ignored, its tokens do not matter to the loss."""
    if subject.pad is None or subject.spec.coupled:
        return []
    labels = batch[1].clone()
    labels[3] = subject.pad
    other = batch[0].clone()
    other[3] = subject.other(batch[0])[3]
    value, moved = (loss_and_gradient(subject, model, (tokens, labels))[0] for tokens in (batch[0], other))
    if abs(value - moved) <= limit * abs(value):
        return []
    message = (
        f"other tokens in a row whose labels are all {subject.pad}, to be ignored, take the loss from {value:.6f} to "
        f"{moved:.6f}: they are asked for all the same"
    )
    return [Finding("invariance.ignored", WARNING, message, {})]  # a tagger may go by the padding of its tokens


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
            # a mean that counts padding shrinks in proportion; anything else was asked of it
            sizes = [(batch[-1].numel(), other[-1].numel()), (batch[-1][:, 1:].numel(), other[-1][:, 1:].numel())]
            counted = any(abs(value * before - other_value * after) <= 1e-6 * abs(value) * before
                          for before, after in sizes)  # fmt: skip
            findings.append(Finding("invariance.changes", ERROR, message, {"case": name, "counted": counted}))
    if isinstance(subject.spec, EncoderDecoder):
        changed = (subject.other(batch[0]), batch[1])
        if abs(loss_and_gradient(subject, model, changed)[0] - value) <= limit * abs(value):
            message = f"another source leaves the loss at {value:.6f}: it never reads the source"
            findings.append(Finding("invariance.source", ERROR, message, {}))
    if isinstance(subject.spec, Encoder):
        asked = torch.isin(batch[1], subject.pads(), invert=True)
        changed = (batch[0], torch.where(asked, subject.other(batch[1]), batch[1]))
        if abs(loss_and_gradient(subject, model, changed)[0] - value) <= limit * abs(value):
            message = f"other labels leave the loss at {value:.6f}: it never reads them"
            findings.append(Finding("invariance.labels", ERROR, message, {}))
        findings += unasked(subject, model, batch, limit)
    return findings
