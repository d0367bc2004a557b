"""The learning rate to its end: never negative, never zero while there is training left, and not rising again.

With `steps` declared, every update up to the last is asked for, and some beyond it: training may be prolonged. Without,
the schedule is followed far beyond its warm-up; what happens past its end is its owner's business, and pointed out.
"""

import dis
import math
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.raised import line, theirs
from clearhead.doctor.subject import Subject

FAR = 1_000_000
DENSE = 2000  # more updates than this are sampled


def asked(warmup: int, steps: int | None) -> list[int]:
    """Which updates to ask for: all, or a geometric ladder with the neighbours of each rung."""
    last = steps - 1 if steps is not None else FAR
    if last < DENSE:
        return list(range(last + 1))
    rungs = {*range(4), *range(max(0, warmup - 2), warmup + 3), last - 1, last}
    value = float(max(4, warmup))
    while value < last:
        rungs |= {int(value), int(value) + 1}
        value *= 1.05
    return sorted(rung for rung in rungs if rung <= last)


def real(value: Any) -> float:
    """A learning rate as a number; a root of a negative number is complex, and no number."""
    return math.nan if isinstance(value, complex) else float(value)


def run(subject: Subject) -> list[Finding]:
    rate, warmup = subject.spec.learning_rate, subject.spec.warmup or 0
    if rate is None:
        raise NotArmed("no learning_rate() described")
    steps = subject.spec.steps
    severity = ERROR if steps is not None else WARNING
    end = f" of {steps}" if steps is not None else ""
    rates: dict[int, float] = {}
    for step in asked(warmup, steps):
        try:
            rates[step] = real(rate(step))
        except Exception as error:
            if not rates:
                raise
            message = f"learning_rate({step}){end} raised {type(error).__name__}: {error}"
            return [Finding("decay.raised", severity, message, {"step": step})]
        if not math.isfinite(rates[step]) or rates[step] < 0:
            message = f"the learning rate of update {step}{end} is {rates[step]:g}: it climbs the loss, or is no number"
            return [Finding("decay.negative", severity, message, {"step": step})]
    found = [
        *zero(rates, steps, severity),
        *rising(rates, warmup, end),
        *jump(rates, warmup, ERROR if warmup else WARNING),
    ]
    if steps is None or found:
        return found
    return beyond(subject, rates, steps) or unfinished(rates, steps) or level(subject, rates, steps)


def level(subject: Subject, rates: dict[int, float], steps: int) -> list[Finding]:
    """A rate that never falls may be meant so; not where the schedule has lines for it that no update comes to."""
    rate, peak = subject.spec.learning_rate, max(rates.values())
    assert rate is not None
    if rates[steps - 1] < 0.999 * peak:
        return []
    lines = unreached(rate, [*rates, *(int(steps * factor) for factor in (1, 1.5, 2, 3))])
    if not lines:
        return []
    message = f"the learning rate never falls, and in {steps} updates and beyond the schedule never comes to this line"
    return [Finding("decay.level", WARNING, message, {}, lines[:3])]


def unreached(rate: Callable[[int], float], steps: list[int]) -> tuple[str, ...]:
    """Lines that return something, in the functions a schedule runs, which none of these updates comes to."""
    seen: dict[CodeType, set[int]] = {}

    def watch(frame: FrameType, event: str, arg: Any) -> Any:
        if not theirs(frame.f_code.co_filename):
            return None
        seen.setdefault(frame.f_code, set()).add(frame.f_lineno)
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        for step in steps:
            rate(step)
    except Exception:
        pass  # past its end a schedule may refuse
    finally:
        sys.settrace(before)
    missed = []
    for code, lines in seen.items():
        returns = [x.positions for x in dis.get_instructions(code) if x.opname == "RETURN_VALUE"]
        numbers = {place.lineno for place in returns if place and place.lineno}
        missed += [line(code.co_filename, number) for number in sorted(numbers - lines)]
    return tuple(missed)


def unfinished(rates: dict[int, float], steps: int) -> list[Finding]:
    """A decay that gets steeper all the way has not come to its end if much of the peak is left there."""
    peak, places = max(rates.values()), [steps - 1 - steps // 4, steps - 1 - steps // 8, steps - 1]
    rungs = [min(rates, key=lambda step: abs(step - place)) for place in places]
    early, middle, last = (rates[rung] for rung in rungs)
    if len(set(rungs)) < 3 or last < 0.3 * peak:
        return []
    slopes = (early - middle) / (rungs[1] - rungs[0]), (middle - last) / (rungs[2] - rungs[1])
    if slopes[0] <= 0 or slopes[1] < 1.02 * slopes[0]:
        return []
    message = f"at the last of {steps} updates the rate is still {last / peak:.0%} of its peak, and falls ever faster"
    return [Finding("decay.unfinished", WARNING, message, {})]


def beyond(subject: Subject, rates: dict[int, float], steps: int) -> list[Finding]:
    """Past the last planned update the rate neither rises again nor turns negative; it may refuse."""
    assert subject.spec.learning_rate is not None
    last, peak = rates[steps - 1], max(rates.values())
    for step in sorted({int(steps * factor) for factor in (1, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 3.0)}):
        try:
            value = real(subject.spec.learning_rate(step))
        except Exception:
            return []
        if not math.isfinite(value) or value < 0 or value > 2 * last + 0.1 * peak:
            message = f"the learning rate of update {step} is {value:g}, {steps} being planned: it is not made for more"
            return [Finding("decay.beyond", WARNING, message, {"step": step, "negative": not value >= 0})]
    return []


def zero(rates: dict[int, float], steps: int | None, severity: str) -> list[Finding]:
    """A rate of zero before the last update: what follows is not trained."""
    peak = max(rates.values())
    started = next((step for step, value in rates.items() if value > 0), None)
    ended = [step for step, value in rates.items() if started is not None and step > started and value <= 1e-12 * peak]
    if steps is None or not ended or ended[0] >= steps - 1 - steps // 100:
        return []
    message = f"the learning rate is zero from update {ended[0]} on, though {steps} are declared: the rest is lost"
    return [Finding("decay.zero", severity, message, {"step": ended[0]})]


def rising(rates: dict[int, float], warmup: int, end: str) -> list[Finding]:
    """After its peak the rate does not come back to more than twice its lowest, and a tenth of the peak."""
    peak = max(rates, key=lambda step: rates[step])
    lowest = math.inf
    for step, value in rates.items():
        if step < max(peak, warmup):
            continue
        lowest = min(lowest, value)
        if value > 2 * lowest + 0.1 * rates[peak]:
            message = (
                f"the learning rate rises again: {show(value)} at update {step}{end}, after it had fallen to "
                f"{show(lowest)}"
            )
            return [Finding("decay.rises", WARNING, message, {"step": step})]
    return []


def jump(rates: dict[int, float], warmup: int, severity: str) -> list[Finding]:
    """Where the warm-up hands over, the rate does not fall off a cliff."""
    for step in range(max(2, warmup - 1), warmup + 3):
        if step in rates and step - 1 in rates and rates[step] < 0.5 * rates[step - 1]:
            message = (
                f"where the warm-up ends, the learning rate falls from {show(rates[step - 1])} to {show(rates[step])} "
                f"within one update ({step})"
            )
            return [Finding("decay.jump", severity, message, {"step": step})]
        last, now = rates.get(step - 1, math.nan), rates.get(step, math.nan)
        rise, usual = now - last, last - rates.get(step - 2, math.nan)
        if rise > 0.05 * max(rates.values()) and rise > 4 * usual > 0:
            message = (
                f"where the warm-up ends, the learning rate leaps from {show(last)} to {show(now)} within one update "
                f"({step}): the warm-up does not lead to where the decay begins"
            )
            return [Finding("decay.jump", severity, message, {"step": step})]
        around = [rates[near] for near in range(step - 2, step + 2) if near in rates]
        if len(around) == 4 and drops_at_once(around, max(rates.values())):
            message = (
                f"where the warm-up ends, the learning rate drops by {show(rates[step - 1] - rates[step])} ({step}), "
                f"and by {show(rates[step] - rates[step + 1])} at the next update: the decay began before it took over"
            )
            return [Finding("decay.jump", WARNING, message, {"step": step})]
    return later_jump(rates)


def later_jump(rates: dict[int, float]) -> list[Finding]:
    """A level that hands over to a decay does not begin with a drop; one that stays level again is a staircase."""
    peak = max(rates.values())
    for step in rates:
        near = [rates.get(step + offset) for offset in (-2, -1, 0, 1, 2)]
        if None in near:
            continue
        before, top, first, second, third = (value for value in near if value is not None)
        fall, after = top - first, first - second
        if abs(before - top) < 1e-9 * peak and fall > 0.02 * peak and fall > 4 * after > 0 and second > third:
            message = (
                f"after a level the learning rate drops by {show(fall)} at update {step}, and by {show(after)} at the "
                "next: the decay does not start from the level"
            )
            return [Finding("decay.jump", WARNING, message, {"step": step})]
    return []


def drops_at_once(rates: list[float], peak: float) -> bool:
    """Rising, then a drop that is several times what the decay goes on with, and no more than a plateau's rounding."""
    before, top, first, second = rates
    fall, after = top - first, first - second
    return before < top and fall > 2e-3 * peak and fall > 4 * abs(after) and after > 0
