"""The learning rate is positive from the first update, rises to its peak at the end of the warm-up, and then falls."""

import math

from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject


def run(subject: Subject) -> list[Finding]:
    rate, warmup = subject.spec.learning_rate, subject.spec.warmup
    if rate is None:
        raise NotArmed("no learning_rate() described")
    count = 4 * (warmup or 100)
    rates: list[float] = []
    for step in range(count):
        try:
            rates.append(float(subject.call("learning_rate", lambda _, step: rate(step), None, step)))
        except Raised:
            if len(rates) <= (warmup or 0):
                raise
            break  # past its end a schedule may refuse
    if not all(math.isfinite(value) and value >= 0 for value in rates):
        bad = next(step for step, value in enumerate(rates) if not (math.isfinite(value) and value >= 0))
        return [Finding("schedule.invalid", ERROR, f"the learning rate of update {bad} is {rates[bad]}", {})]
    findings = []
    peak = max(rates)
    if rates[0] <= 1e-6 * peak:
        message = f"the first update has a learning rate of {show(rates[0])}: it is lost"
        findings.append(Finding("schedule.zero", WARNING, message, {}))
    if warmup is not None:
        at = rates.index(peak)
        if abs(at - warmup) > max(1, 0.05 * warmup):
            message = f"the learning rate peaks at update {at}, the declared warm-up ends at {warmup}"
            findings.append(Finding("schedule.peak", ERROR, message, {"at": at}))
        drop = next((step for step in range(1, at) if rates[step] < rates[step - 1]), None)
        if drop is not None:
            findings.append(Finding("schedule.drops", WARNING, f"it falls at update {drop}, within the warm-up", {}))
        findings = findings or power(rates, at)
    return findings


def power(rates: list[float], at: int) -> list[Finding]:
    """A warm-up that grows like a power of the update other than the first, slower or faster than a line."""
    places = [place for place in (at // 8, at // 4, at // 2, 3 * at // 4) if place >= 4]
    if len(places) < 3 or not all(0 < rates[place] < rates[at] for place in places):
        return []
    powers = [
        math.log(rates[at] / rates[place]) / math.log((at + offset) / (place + offset))
        for offset in (0, 1)
        for place in places
    ]
    for some in (powers[: len(places)], powers[len(places) :]):
        if max(some) - min(some) < 0.01 and abs(some[0] - 1) > 0.1:
            message = f"the warm-up grows with the update to the power of {some[0]:.2f}, not along a line"
            return [Finding("schedule.power", WARNING, message, {})]
    return []
