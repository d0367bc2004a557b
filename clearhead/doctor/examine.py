"""An examination: every armed probe runs on its own, and what they found together is turned into likely causes.

The caller's world is left as it was: random state, default dtype, gradient mode and thread count are put back, and
only models that the doctor built or copied are touched.
"""

import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch

from clearhead.doctor.causes import diagnose
from clearhead.doctor.describe import Description
from clearhead.doctor.finding import ERROR, NOTE, Finding, NotArmed, Report
from clearhead.doctor.probes import AS_IT_IS, PROBES, RANDOM, SLOW, load
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject
from clearhead.errors import InputError


@contextmanager
def unchanged() -> Iterator[None]:
    """Put the caller's random state, default dtype and gradient mode back, whatever happens."""
    state, dtype, gradients = random.getstate(), torch.get_default_dtype(), torch.is_grad_enabled()
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a builder that warns would do so hundreds of times
            torch.set_num_threads(1)  # for tensors this small, more threads are slower
            torch.set_default_dtype(torch.float32)
            torch.set_grad_enabled(True)
            random.seed(0)
            yield
    finally:
        random.setstate(state)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)
        torch.set_num_threads(threads)


def chosen(only: Iterable[str] | None, quick: bool) -> list[str]:
    """The names of the probes to run, in order; an unknown name is a mistake worth telling."""
    if only is not None:
        names = list(only)
        unknown = [name for name in names if name not in PROBES]
        if unknown:
            raise InputError(f"no probe is called {unknown[0]!r}; there are {', '.join(PROBES)}")
        return [name for name in PROBES if name in names]
    return [name for name in PROBES if not (quick and name in SLOW)]


def run_probe(name: str, subject: Subject) -> list[Finding]:
    """One probe, with the same random numbers whichever ran before it."""
    torch.manual_seed(0)
    try:
        return load(name)(subject)
    except (NotArmed, InputError):
        raise
    except Exception as error:
        return after_raising(name, subject, error)


def after_raising(name: str, subject: Subject, error: Exception) -> list[Finding]:
    """Something the probe called raised: on purpose, in this precision only, always, or on some inputs only."""
    raised = error if isinstance(error, Raised) else Raised(name, error)
    if not isinstance(error, Raised) and not raised.where:
        raise NotArmed(f"the probe itself failed ({raised.kind}: {raised.reason})") from error
    if subject.dtype == torch.float64 and subject.spec.dtype is None:
        subject.narrowed.worked |= subject.worked
        return run_probe(name, subject.narrowed)
    never = isinstance(error, Raised) and raised.what not in subject.worked
    if never and raised.what.startswith("forward"):
        raise InputError(f"{raised.told()}; at {raised.where}: it never worked, though the description says it would")
    if raised.refused and not never:
        raise NotArmed(f"the model refuses: {raised.told()} (at {raised.where})") from error
    worked = "it never worked" if never else "though other inputs of this kind work"
    message = f"{raised.told()}: {worked}"
    evidence = {"error": raised.kind, "what": raised.what, "shapes": raised.shapes}
    return [Finding(f"{name}.raised", ERROR, message, evidence, (raised.where,) if raised.where else ())]


def arm(name: str, subject: Subject) -> None:
    """Where evaluation is random, most probes can compare only if dropout can be silenced from outside."""
    subject.silenced = False
    if subject.repeatable or name in AS_IT_IS:
        return
    if not subject.silence() and name not in RANDOM:
        raise NotArmed("outputs are random in evaluation mode: see what the mode probe says")


def check(
    spec: Description,
    only: Iterable[str] | None = None,
    quick: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Examine a described model. `only` names probes; `quick` leaves out those that train or use long inputs."""
    if not isinstance(spec, Description):
        raise InputError(
            f"the doctor wants a description (doctor.CausalLM, doctor.Encoder or doctor.EncoderDecoder), "
            f"found {type(spec).__name__}"
        )
    names = chosen(only, quick)
    findings: list[Finding] = []
    passed, not_armed, seconds = [], {}, {}
    crashes: dict[tuple[str, ...], str] = {}  # the line that raised, and the probe that told it first
    with unchanged():
        subject = Subject(spec)
        for name in names:
            if progress is not None:
                progress(name)
            start = time.perf_counter()
            try:
                arm(name, subject)
                found = run_probe(name, subject)
            except NotArmed as reason:
                not_armed[name] = str(reason)
            else:
                crash = next((f for f in found if f.id.endswith(".raised")), None)
                place = (crash.where or (crash.evidence["error"],)) if crash is not None else ()
                if crash is not None and crashes.setdefault(place, name) != name:
                    found = [finding for finding in found if finding is not crash]
                    not_armed[name] = f"the model raised {crash.evidence['error']} as in {crashes[place]}"
                findings += found
                if name not in not_armed and all(finding.severity == NOTE for finding in found):
                    passed.append(name)
            seconds[name] = time.perf_counter() - start
    if not passed and not findings:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in not_armed.items())
        raise InputError(f"nothing could be examined ({reasons})")
    notes = [finding for finding in findings if finding.severity == NOTE]
    causes, findings = diagnose([finding for finding in findings if finding.severity != NOTE], passed)
    findings += notes
    return Report(spec.name or type(spec).__name__, tuple(findings), tuple(passed), not_armed, causes, seconds)
