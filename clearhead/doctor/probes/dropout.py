"""Dropout has the rate it was built with, in every place, and nothing else tells training from evaluation.

The model's own dropout is left alone: a build with dropout=0 must not draw at all, a build with another rate must
draw with that rate, and with every draw at its mean a training pass must give what evaluation gives.
"""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from clearhead.doctor.draws import Callers, Draw, Draws, Kept, Told
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.sizes import taken
from clearhead.doctor.subject import Subject, gap

RATE = 0.3  # far from the 0.1 and 0.5 that defaults have


def draws(subject: Subject, model: nn.Module) -> list[Draw]:
    """What one training pass draws."""
    with torch.no_grad(), Draws() as seen:
        subject.spec.forward(model.train(), *subject.inputs(2, 7, seed=60))
    return [draw for draw in seen.seen if draw.rate > 0]


def other_rates(subject: Subject, model: nn.Module) -> list[str]:
    """Dropout rates of their own that the builder or the configuration has, and that were not asked for."""
    given = {name for names in taken(subject.spec.build).values() for name in names}
    try:
        parameters = inspect.signature(subject.spec.build).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    found = [name for name in parameters if "drop" in name.lower() and name not in given]
    for attribute in ("config", "cfg", "args", "hparams"):
        config = getattr(model, attribute, None)
        fields = config if isinstance(config, dict) else getattr(config, "__dict__", {})
        found += [
            f"{attribute}.{name}"
            for name, value in fields.items()
            if "drop" in str(name).lower() and isinstance(value, float) and value > 0
        ]
    return found


def rates(subject: Subject) -> list[Finding]:
    still = subject.raw(dropout=0.0)
    stays, follows = draws(subject, still), draws(subject, subject.raw(dropout=RATE))
    findings = []
    if stays:
        lines = tuple(dict.fromkeys(draw.where for draw in stays))
        size = spread_in_training(subject, still)
        message = (
            f"built with dropout=0, {len(stays)} places still drop with {stays[0].rate:g}: two training passes over "
            f"the same input differ by {show(size)}"
        )
        own = other_rates(subject, still)
        heard = any(abs(draw.rate - RATE) < 1e-6 for draw in follows)
        if own:
            message += f" ({', '.join(own[:3])} may be meant)"
        elif not heard:
            message += "; no place follows the rate, so perhaps build does not pass it on"
        evidence = {"rate": stays[0].rate, "places": len(stays), "follows": heard, "own": own}
        severity = ERROR if heard and not own else WARNING
        findings.append(Finding("dropout.stays", severity, message, evidence, lines))
    elif subject.repeatable and (size := spread_in_training(subject, still)) > 0.01 * subject.spread(subject.views[0]):
        message = f"built with dropout=0, two training passes over the same input differ by {show(size)}"
        findings.append(Finding("dropout.stays", WARNING, message, {"rate": None, "follows": False}))
    known = {round(RATE, 6), *(draw.rate for draw in stays)}
    other = [draw for draw in follows if draw.rate not in known]
    if other and not stays:
        message = f"built with dropout={RATE}, {len(other)} places drop with {other[0].rate:g}"
        where = tuple(dict.fromkeys(draw.where for draw in other))
        findings.append(Finding("dropout.rate", WARNING, message, {"rate": other[0].rate}, where))
    return findings + ([] if findings else in_layers(subject))


def in_layers(subject: Subject) -> list[Finding]:
    """A deeper model drops in more places; where it does not, the layers have been left out."""
    if "layers" not in subject.names or subject.spec.shared:
        return []
    shallow, deep = (draws(subject, subject.raw(dropout=RATE, layers=layers)) for layers in (1, 3))
    if not shallow or len(deep) > len(shallow):
        return []
    lines = tuple(dict.fromkeys(draw.where for draw in deep))
    message = f"three layers drop in as many places as one ({len(deep)}): dropout never acts in the layers"
    return [Finding("dropout.layers", WARNING, message, {"places": len(deep)}, lines)]


def spread_in_training(subject: Subject, model: nn.Module) -> float:
    """How far two training passes over the same input differ."""
    out = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        out.append(subject.whole(model.train(), subject.inputs(2, 7, seed=60)))
    return gap(out[0], out[1])


def at_their_mean(subject: Subject) -> list[Finding]:
    """With every draw at its mean, training gives what evaluation gives."""
    overrides: dict[str, Any] = {"dropout": RATE} if "dropout" in subject.names else {}
    model, inputs = subject.fresh(**overrides), subject.inputs(2, 7, seed=61)
    evaluated = subject.whole(model, inputs)
    out = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with Draws(at_mean=True) as seen:
            out.append(subject.whole(model.train(), inputs))
    if not seen.seen:
        raise NotArmed("no Bernoulli draw was seen in training: there is no dropout, or it is made another way")
    tolerance = subject.tolerance(subject.views[0])
    if gap(out[0], out[1]) > tolerance or not subject.exact() or subject.spec.coupled:
        return []  # random in another way than by Bernoulli draws, or not comparable
    size = gap(evaluated, out[0])
    if size <= tolerance or already_told(subject):
        return []
    message = (
        f"with every draw of dropout at its mean, training and evaluation mode differ by {show(size)} on the same input"
    )
    where = tuple(dict.fromkeys(draw.where for draw in seen.seen))
    return [Finding("dropout.differs", ERROR if seen.certain else WARNING, message, {}, where[:3])]


def already_told(subject: Subject) -> bool:
    """Do training and evaluation differ without any dropout too? Then the mode probe says so."""
    model, inputs = subject.without_dropout(), subject.inputs(2, 7, seed=61)
    evaluated = subject.whole(model, inputs)
    with Draws() as seen:
        trained = subject.whole(model.train(), inputs)
    return not seen.seen and gap(evaluated, trained) > subject.tolerance(subject.views[0])


def by_hand(subject: Subject) -> list[Finding]:
    """A mask that lets everything through still divides by the probability of keeping, or it does not keep the mean."""
    overrides: dict[str, Any] = {"dropout": RATE} if "dropout" in subject.names else {}
    model, inputs = subject.fresh(**overrides), subject.inputs(2, 7, seed=61)
    tolerance, evaluated = subject.tolerance(subject.views[0]), subject.whole(model, inputs)
    for uniform in (1 - 2**-20, 0.0):
        with Kept(uniform) as kept:
            trained = subject.whole(model.train(), inputs)
        # numbers for whole layers, rows or tokens are no dropout of features
        drawn = [shape for shape in kept.shapes if len(shape) >= 3 and min(shape[-2:]) > 1]
        if not drawn or len(drawn) < len(kept.shapes) or not subject.exact() or subject.spec.coupled:
            return []
        if gap(evaluated, trained) <= tolerance < spread_in_training(subject, model):
            message = (
                "dropout that lets everything through leaves features as they are in evaluation, where it should "
                "divide by the probability of keeping: on average training sees smaller ones"
            )
            where = tuple(dict.fromkeys(kept.lines))
            return [Finding("dropout.differs", ERROR, message, {"by_hand": True}, where[:3])]
    return []


def told_not_to(subject: Subject) -> list[Finding]:
    """In training, a dropout that has a rate is not told to stay away; nor does a path forget one that others have."""
    overrides: dict[str, Any] = {"dropout": RATE} if "dropout" in subject.names else {}
    model, inputs = subject.raw(**overrides).train(), subject.inputs(2, 7, seed=60)
    if not all(module.training for module in model.modules()):
        return []  # what is left in evaluation mode on purpose has no dropout
    with Told() as told, Callers(model) as callers:
        subject.whole(model, inputs)
    if idle := callers.idle():
        message = f"{idle[0]} was made with a rate of {RATE:g} and is never called, nor does anything drop in its place"
        return [Finding("dropout.off", WARNING, message, {"places": len(idle), "module": True})]
    if told.off:
        message = f"in training mode {len(told.off)} places ask for dropout and say at the same time that it is off"
        return [Finding("dropout.off", WARNING, message, {"places": len(told.off)}, tuple(dict.fromkeys(told.off))[:3])]
    usual = rates_by_line(draws(subject, model))
    for path, forward in subject.spec.paths.items():
        with torch.no_grad(), Draws() as seen:
            subject.call(f"paths[{path!r}]", forward, model, *inputs)
        rates = rates_by_line(draw for draw in seen.seen if draw.rate > 0)
        if rates != usual and rates and usual:
            message = f"in training, forward drops in {told_rates(usual)}, the path {path!r} in {told_rates(rates)}"
            return [Finding("dropout.off", WARNING, message, {"places": abs(len(rates) - len(usual)), "path": path})]
    return []


def rates_by_line(seen: Iterable[Draw]) -> list[float]:
    """The rate of each line that drops: one that works in pieces or layer by layer is one line."""
    return sorted(rate for _, rate in {(draw.where, draw.rate) for draw in seen})


def told_rates(rates: list[float]) -> str:
    return f"{len(rates)} lines with {' and '.join(f'{rate:g}' for rate in sorted(set(rates)))}"


def run(subject: Subject) -> list[Finding]:
    findings = rates(subject) if "dropout" in subject.names else []
    if not subject.repeatable:
        return findings
    findings += by_hand(subject) or ([] if findings else told_not_to(subject))
    try:
        return findings + (at_their_mean(subject) if all(f.id != "dropout.differs" for f in findings) else [])
    except NotArmed:
        if findings:
            return findings
        raise
