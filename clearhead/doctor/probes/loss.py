"""The loss is the one declared: position i predicts token i+1, padding is ignored, real tokens weigh the same.

The value is compared with every usual way to compute a loss from the same outputs; the one that fits is named.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.candidate_losses import CandidateLoss, enumerate_losses
from clearhead.doctor.describe import CausalLM, Encoder, EncoderDecoder
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.subject import Subject, outputs, parameters_of

BACKWARDS = "labels shifted backwards"


def batch_of(subject: Subject, padded: bool) -> tuple[Tensor, ...]:
    """The arguments of loss() after the model; rows of different lengths where padding is declared."""
    inputs = subject.inputs(4, 9, seed=70)
    if isinstance(subject.spec, Encoder):
        inputs = (*inputs, subject.tokens(4, 9, seed=71))
    if padded and subject.spec.pad is not None:
        inputs = tuple(x.clone() for x in inputs)
        for x in inputs:
            for row, count in ((1, 3), (2, 5)):
                x[row, x.size(1) - count :] = subject.spec.pad
            # tokens that a loss may ignore by mistake
            for place, token in enumerate(token for token in (0, 1, 2) if token != subject.spec.pad):
                x[0, 2 + place] = token
    return inputs


def logits_for(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...], hide: bool = True) -> Tensor:
    """The outputs the loss should be computed from, padding hidden where forward can."""
    spec, pad = subject.spec, subject.spec.pad
    count = parameters_of(spec.forward)
    with torch.no_grad():
        if isinstance(spec, EncoderDecoder):
            extra = (batch[0] != pad,) if pad is not None and count >= 4 and hide else ()
            return outputs(spec.forward(model, *batch, *extra))
        if isinstance(spec, Encoder):
            extra = (batch[0] != pad,) if pad is not None and count >= 3 and hide else ()
            return outputs(spec.forward(model, batch[0], *extra))
        return outputs(spec.forward(model, batch[0]))


def value_of(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> float:
    with torch.no_grad():
        result: Any = subject.spec.loss(model, *batch)  # type: ignore[misc]
    result = getattr(result, "loss", result)
    result = result[0] if isinstance(result, tuple | list) else result
    if isinstance(result, Tensor) and result.numel() != 1:
        raise NotArmed(f"loss() returned shape {tuple(result.shape)}, wanted one number")
    return float(result)


def declared_readings(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> list[tuple[str, Tensor]]:
    """The outputs a right loss uses; where the last token is not fed, a model that sees the future shows it."""
    readings = [("", logits_for(subject, model, batch))]
    if not isinstance(subject.spec, Encoder):
        short = logits_for(subject, model, (*batch[:-1], batch[-1][:, :-1]))
        readings.append(("", torch.cat([short, short[:, -1:]], dim=1)))
    return readings


def other_readings(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> list[tuple[str, Tensor]]:
    """Outputs for inputs the loss should not have used, and the name of the mistake."""
    spec, readings = subject.spec, []
    if isinstance(spec, EncoderDecoder):
        target = batch[1]
        if subject.spec.pad is not None and parameters_of(spec.forward) >= 4:
            readings.append(("source padding not hidden", logits_for(subject, model, batch, hide=False)))
        leaked = logits_for(subject, model, (target[:, 1:], target[:, :-1]))
        readings.append(("the source is the target", torch.cat([leaked, leaked[:, -1:]], dim=1)))
    elif isinstance(spec, Encoder) and spec.pad is not None and parameters_of(spec.forward) >= 3:
        readings.append(("padding not hidden", logits_for(subject, model, batch, hide=False)))
    elif isinstance(spec, CausalLM):
        later = logits_for(subject, model, (batch[0][:, 1:],))
        readings.append((BACKWARDS, torch.cat([later[:, :1], later], dim=1)))
    return readings


def explain(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[float, CandidateLoss, str] | None:
    """The value, the candidate that fits it best, and the reading of the inputs it needs; None if nothing fits."""
    value, tokens = value_of(subject, model, batch), batch[-1]
    shift = 0 if isinstance(subject.spec, Encoder) else 1
    spec = subject.spec
    ignorable = tuple(token for token in (0, 1, 2) if token != spec.pad)
    limit = 1e-6 if subject.tolerance(subject.views[0]) <= 1e-6 * subject.spread(subject.views[0]) else 1e-5
    readings = [*declared_readings(subject, model, batch), *other_readings(subject, model, batch)]
    fitting: list[tuple[float, CandidateLoss, str]] = []
    for reading, logits in readings:
        if logits.size(1) != tokens.size(1):
            continue
        for candidate in enumerate_losses(logits, tokens, shift, spec.pad, spec.label_smoothing, ignorable):
            if reading == BACKWARDS and candidate.pairing != BACKWARDS:
                continue
            if abs(candidate.value - value) <= limit * max(1.0, abs(value)):
                fitting.append((value, candidate, reading))
    # the declared loss if it fits at all; of several others the simplest
    return next((found for found in fitting if found[1].healthy and not found[2]), fitting[0] if fitting else None)


def run(subject: Subject) -> list[Finding]:
    if subject.spec.loss is None:
        raise NotArmed("no loss() described")
    model = subject.without_dropout()
    if subject.dtype not in (torch.float64, torch.float32):
        raise NotArmed("equality cannot be asked for in 16 bits")
    model = model.double() if subject.dtype == torch.float64 else model
    cases = [batch_of(subject, False)] + ([batch_of(subject, True)] if subject.spec.pad is not None else [])
    for number, batch in enumerate(cases):
        if logits_for(subject, model, batch).size(-1) < int(batch[-1].max()) + 1:
            raise NotArmed("the outputs are no logits over the labels")
        explained = explain(subject, model, batch)
        padded = "a padded batch" if number else "a batch without padding"
        if explained is None:
            value = value_of(subject, model, batch)
            message = f"on {padded} the loss is {value:.6f}, which no usual reading of the model's outputs gives"
            return [Finding("loss.unexplained", WARNING, message, {"padded": bool(number)})]
        value, fits, reading = explained
        if fits.healthy and not reading:
            continue
        what = [reading] if reading else []
        what += [fits.pairing] if fits.pairing != "as declared" else []
        what += [f"averaged over {fits.average}"] if fits.average != "real tokens" else []
        what += [f"smoothing: {fits.smoothing}"] if fits.smoothing != "as declared" else []
        message = f"on {padded} the loss is {value:.6f}, which is exactly what one gets with {'; '.join(what)}"
        evidence = {"pairing": fits.pairing, "average": fits.average, "smoothing": fits.smoothing, "reading": reading}
        # another mean is a choice, if an unusual one; anything else is a mistake
        other_mean = fits.average.startswith(("no mean", "rows", "positions"))
        mild = fits.pairing == "as declared" and not reading and other_mean
        return [Finding("loss.other", WARNING if mild else ERROR, message, evidence)]
    return []
