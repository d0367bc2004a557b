"""The loss is the one declared: position i predicts token i+1, padding is ignored, real tokens weigh the same.

The value is compared with every usual way to compute a loss from the same outputs; the one that fits is named.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from clearhead.doctor.candidate_losses import CandidateLoss, fitting_losses
from clearhead.doctor.describe import CausalLM, Encoder, EncoderDecoder
from clearhead.doctor.finding import ERROR, NOTE, WARNING, Finding, NotArmed
from clearhead.doctor.fitted_loss import FittedLoss, fitted
from clearhead.doctor.subject import Subject, parameters_of

BACKWARDS = "labels shifted backwards"
ANSWERS = "the model reads its labels"
FITS = 30  # batches a fit is made of, twice as many as it has weights


def batch_of(subject: Subject, padded: bool, seed: int = 70) -> tuple[Tensor, ...]:
    """The arguments of loss() after the model; rows of different lengths where padding is declared."""
    inputs = subject.inputs(4, 9, seed=seed)
    if isinstance(subject.spec, Encoder):
        inputs = (*inputs, subject.tokens(4, 9, seed=seed + 1))
    if padded and subject.pad is not None:
        inputs = tuple(x.clone() for x in inputs)
        for x, pad in zip(inputs, paddings(subject, inputs), strict=True):
            for row, count in ((1, 3), (2, 5)):
                x[row, x.size(1) - count :] = pad
            # tokens that a loss may ignore by mistake
            for place, token in enumerate(unlikely(subject)):
                x[0, 2 + place] = token
    return inputs


def paddings(subject: Subject, inputs: tuple[Tensor, ...]) -> tuple[int, ...]:
    """The padding token of each argument of loss(); 0 where none is declared."""
    return (subject.source_pad or 0, subject.pad or 0)[-len(inputs) :]


def unlikely(subject: Subject) -> tuple[int, ...]:
    """Tokens other than padding that a loss may ignore by mistake."""
    near = (0, 1, 2) if subject.pad is None or subject.pad < 2 else (0, 1, 2, subject.pad - 1, subject.pad + 1)
    return tuple(t for t in near if t < subject.vocab and t not in (subject.source_pad, subject.pad))


def logits_for(
    subject: Subject, model: nn.Module, batch: tuple[Tensor, ...], hide: bool = True, target: bool = False
) -> Tensor:
    """The outputs the loss should be computed from, padding hidden where forward can; of the target where asked."""
    spec, pad = subject.spec, subject.source_pad
    given = batch if isinstance(spec, EncoderDecoder) else batch[:1]
    masked = parameters_of(spec.forward) > 1 + len(given) and not isinstance(spec, CausalLM)
    if pad is None or not hide or not masked or spec.pad_by_id:
        return subject.whole(model, given)
    masks = [batch[0].ne(pad)]
    if target and subject.pad is not None:
        masks.append(batch[-1].ne(subject.pad))
    return subject.whole(model, (*given, *masks))


def hides_target(subject: Subject) -> bool:
    """Does forward take a mask for the target, too? It changes nothing but the outputs at padding."""
    spec = subject.spec
    both = isinstance(spec, EncoderDecoder) and parameters_of(spec.forward) >= 5 and not spec.pad_by_id
    return both and subject.pad is not None


def value_of(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> float:
    with torch.no_grad():
        return float(subject.loss(model, batch))


def declared_readings(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> list[tuple[str, Tensor]]:
    """The outputs a right loss uses; where the last token is not fed, a model that sees the future shows it."""
    readings = [("", logits_for(subject, model, batch))]
    if not isinstance(subject.spec, Encoder):
        short = logits_for(subject, model, (*batch[:-1], batch[-1][:, :-1]))
        readings.append(("", torch.cat([short, short[:, -1:]], dim=1)))
    if hides_target(subject):
        readings.append(("", logits_for(subject, model, batch, target=True)))
    return readings


def other_readings(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...]) -> list[tuple[str, Tensor]]:
    """Outputs for inputs the loss should not have used, and the name of the mistake."""
    spec, readings = subject.spec, []
    if isinstance(spec, EncoderDecoder):
        target = batch[1]
        if subject.pad is not None and parameters_of(spec.forward) >= 4 and not spec.pad_by_id:
            readings.append(("source padding not hidden", logits_for(subject, model, batch, hide=False)))
        leaked = logits_for(subject, model, (target[:, 1:], target[:, :-1]))
        readings.append(("the source is the target", torch.cat([leaked, leaked[:, -1:]], dim=1)))
        read = logits_for(subject, model, (batch[0], target[:, 1:]))
        readings.append((ANSWERS, torch.cat([read, read[:, -1:]], dim=1)))
    elif isinstance(spec, Encoder) and spec.pad is not None and parameters_of(spec.forward) >= 3 and not spec.pad_by_id:
        readings.append(("padding not hidden", logits_for(subject, model, batch, hide=False)))
    elif isinstance(spec, CausalLM):
        later = logits_for(subject, model, (batch[0][:, 1:],))
        readings.append((BACKWARDS, torch.cat([later[:, :1], later], dim=1)))
        readings.append((ANSWERS, torch.cat([later, later[:, -1:]], dim=1)))
    return readings


Explained = tuple[CandidateLoss, str]  # a candidate, and the reading of the inputs it needs


def explain(subject: Subject, model: nn.Module, batches: list[tuple[Tensor, ...]]) -> Explained | None:
    """The candidate that gives the loss of every batch; None if none does."""
    limit = 1e-6 if subject.tolerance(subject.views[0]) <= 1e-6 * subject.spread(subject.views[0]) else 1e-5
    plain = [declared(subject, model, batch, limit) for batch in batches]
    if plain[0] is not None and all(
        found is not None and found.form.smoothing == plain[0].smoothing for found in plain
    ):
        return plain[0], ""
    fitting: dict[tuple[str, ...], Explained] | None = None
    for batch in batches:
        value = value_of(subject, model, batch)
        close: dict[tuple[str, ...], Explained] = {
            (candidate.pairing, candidate.average, candidate.smoothing, reading): (candidate, reading)
            for candidate, reading in candidates(subject, model, batch, value, limit * max(1.0, abs(value)))
        }
        # one number may fit by accident, two do not
        fitting = close if fitting is None else {key: found for key, found in fitting.items() if key in close}
    found = list((fitting or {}).values())
    # the declared loss if it fits at all; of several others the simplest
    usual = [row for row in found if row[0].healthy(subject.spec.reduction) and not row[1]]
    return next(iter(usual or found), None)


def declared(subject: Subject, model: nn.Module, batch: tuple[Tensor, ...], limit: float) -> CandidateLoss | None:
    """The declared loss, in the first form of it that fits; most losses are, and the rest need not be tried."""
    value = value_of(subject, model, batch)
    found = candidates(subject, model, batch, value, limit * max(1.0, abs(value)))
    return next((fits for fits, reading in found if fits.healthy(subject.spec.reduction) and not reading), None)


def candidates(
    subject: Subject, model: nn.Module, batch: tuple[Tensor, ...], value: float, limit: float
) -> Iterator[Explained]:
    """Every candidate that fits, for every reading of the inputs, the plainest first."""
    spec, tokens = subject.spec, batch[-1]
    shift = 0 if isinstance(spec, Encoder) else 1
    ways = (declared_readings, other_readings)
    for reading, logits in (row for way in ways for row in way(subject, model, batch)):
        if logits.size(1) != tokens.size(1):
            continue
        for candidate in fitting_losses(
            value, limit, logits, tokens, shift, subject.pad, spec.label_smoothing, unlikely(subject), subject.prefix
        ):
            if candidate.pairing == {BACKWARDS: BACKWARDS, ANSWERS: "as declared"}.get(reading, candidate.pairing):
                yield candidate, reading


def described(subject: Subject) -> nn.Module:
    """The model whose loss is explained."""
    if subject.spec.loss is None:
        raise NotArmed("no loss() described")
    if subject.dtype not in (torch.float64, torch.float32):
        raise NotArmed("equality cannot be asked for in 16 bits")
    return subject.without_dropout()


def run(subject: Subject) -> list[Finding]:
    model = described(subject)
    findings: dict[tuple[str, str], Finding] = {}
    for padded in (False, True) if subject.pad is not None else (False,):
        batches = [batch_of(subject, padded), batch_of(subject, padded, seed=75)]
        if logits_for(subject, model, batches[0]).size(-1) < int(batches[0][-1].max()) + 1:
            raise NotArmed("the outputs are no logits over the labels")
        value, explained = value_of(subject, model, batches[0]), explain(subject, model, batches)
        found = weighed(subject, model, padded) if explained is None else None
        found = found or judge(subject, value, explained, padded)
        if found is not None:
            findings.setdefault((found.id, found.message.partition(", which")[2]), found)
    return list(findings.values())


def weighed(subject: Subject, model: nn.Module, padded: bool) -> Finding | None:
    """What a loss of no known form weighs, where it is a weighted sum of the usual parts."""
    batches = [batch_of(subject, padded, seed=300 + 2 * number) for number in range(FITS)]
    values = [value_of(subject, model, batch) for batch in batches]
    tokens = [batch[-1] for batch in batches]
    ways = (False, True) if padded and hides_target(subject) else (False,)
    read_as = [[logits_for(subject, model, batch, target=target) for batch in batches] for target in ways]
    if any(out.shape[:2] != labels.shape for out, labels in zip(read_as[0], tokens, strict=True)):
        return None
    exact = subject.tolerance(subject.views[0]) <= 1e-6 * subject.spread(subject.views[0])
    shift, pad = (0 if isinstance(subject.spec, Encoder) else 1), subject.pad
    named = unlikely(subject) if padded else ()
    limit = 1e-8 if exact else 1e-5
    found = (fits for logits in read_as for fits in fitted(values, logits, tokens, shift, pad, named, limit))
    fits = next(found, None)
    if fits is None:
        return None
    average, smoothing, severity = read(subject, fits)
    weights = ", ".join(f"{weight:.4g} of {part}" for part, weight in fits.weights.items() if abs(weight) > 1e-5)
    message = (
        f"on {'padded batches' if padded else 'batches without padding'} the loss is exactly {weights}; "
        f"averaged over {average}; smoothing: {smoothing}"
    )
    message += f"; {fits.pairing}" if fits.pairing != "as declared" else ""
    evidence = {"pairing": fits.pairing, "average": average, "smoothing": smoothing, "reading": "", "fitted": True}
    return Finding("loss.other", ERROR if fits.pairing != "as declared" else severity, message, evidence)


def read(subject: Subject, fits: FittedLoss) -> tuple[str, str, str]:
    """The weights in the words of the known forms: what is averaged over, how it is smoothed, and how bad that is."""
    declared, share = subject.spec.label_smoothing, fits.share
    ignored, padding = fits.ignored(), abs(fits.of("label of padding")) > 1e-4 * abs(fits.total)
    average, smoothing = "real tokens", "as declared"
    severity = NOTE if subject.spec.reduction is None else ERROR  # where only the mean is another one
    if ignored is not None:
        average, severity = f"real tokens, token {ignored} ignored", ERROR
    elif padding:
        average, severity = "real tokens, nothing ignored", ERROR
    elif abs(fits.total - 1) > 1e-3:
        average = f"something else: all weights together are {fits.total:.4g}"
    if abs(fits.of("all tokens at padding")) > 1e-4 * abs(fits.total) and not padding:
        smoothing, severity = "over ignored tokens too", ERROR
    elif abs(share - declared) > 0.02 * max(declared, 0.1) or (declared and abs(fits.total - 1) > 1e-3):
        smoothing = f"{share:.4g} of the weight is spread, {declared:g} declared"
        severity = ERROR if declared or ignored is not None or padding else severity
    return average, smoothing, severity


def judge(subject: Subject, value: float, explained: Explained | None, padded: bool) -> Finding | None:
    start = f"on {'a padded batch' if padded else 'a batch without padding'} the loss is {value:.6f}, which"
    if explained is None:
        message = f"{start} no usual reading of the model's outputs gives"
        return Finding("loss.unexplained", WARNING, message, {"padded": padded})
    fits, reading = explained
    if fits.healthy(subject.spec.reduction) and not reading:
        return None
    what = [reading] if reading else []
    what += [fits.pairing] if fits.pairing != "as declared" else []
    what += [f"averaged over {fits.average}"] if fits.average != "real tokens" else []
    what += [f"smoothing: {fits.smoothing}"] if fits.smoothing != "as declared" else []
    message = f"{start} is exactly what one gets with {'; '.join(what)}"
    evidence = {"pairing": fits.pairing, "average": fits.average, "smoothing": fits.smoothing, "reading": reading}
    # another mean, or a smoothing that was left out of the description, is a choice; anything else is a mistake
    choice = fits.average.startswith(("real tokens", "no mean", "rows", "positions", "all elements"))
    other_mean = fits.average == "real tokens" or (choice and subject.spec.reduction is None)
    counts_padding = fits.average == "all elements" and padded
    known = fits.smoothing.startswith("as declared") or "though none is declared" in fits.smoothing
    ignored = "ignored" in fits.average
    mild = fits.pairing == "as declared" and not reading and other_mean and known and not counts_padding and not ignored
    return Finding("loss.other", NOTE if mild else ERROR, message, evidence)
