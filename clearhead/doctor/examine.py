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
from clearhead.doctor.finding import WARNING, Finding, NotArmed, Report
from clearhead.doctor.probes import PROBES, RANDOM, SLOW, load
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
        where = error_line(error)
        reason = str(error).splitlines()[0] if str(error) else ""
        message = f"the model raised {type(error).__name__} on an ordinary input: {reason}"
        return [Finding(f"{name}.raised", WARNING, message, {"error": type(error).__name__}, (where,) if where else ())]


def error_line(error: BaseException) -> str:
    traceback, line = error.__traceback__, ""
    while traceback is not None:
        line = f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line


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
    with unchanged():
        subject = Subject(spec)
        for name in names:
            if progress is not None:
                progress(name)
            start = time.perf_counter()
            try:
                if name not in RANDOM and not subject.repeatable:
                    raise NotArmed("outputs are random in evaluation mode: see what the mode probe says")
                found = run_probe(name, subject)
            except NotArmed as reason:
                not_armed[name] = str(reason)
            else:
                findings += found
                if not found:
                    passed.append(name)
            seconds[name] = time.perf_counter() - start
    if not passed and not findings:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in not_armed.items())
        raise InputError(f"nothing could be examined ({reasons})")
    causes, findings = diagnose(findings)
    return Report(spec.name or type(spec).__name__, tuple(findings), tuple(passed), not_armed, causes, seconds)
