"""Where the learner's code runs: a process of its own for every check, with limits, forked from one with torch ready.

`python -m clearhead.learn.child` reads requests, one JSON object a line, and answers each with a line: perhaps some
`{"progress": …}`, and then `{"verdict": …}`. Whatever the learner's code does (an endless loop, sys.exit, output,
threads that stay) is told with its line. Where there is no fork, a process serves one request and ends.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from clearhead.learn.exercise import Exercise
from clearhead.learn.exercises import course, file_names
from clearhead.learn.guessing import NO_INPUT
from clearhead.learn.judge import check
from clearhead.learn.load import load_exercise, stand_in_for_others
from clearhead.learn.verdict import BROKEN, Line, Verdict

PATIENCE = 6  # times the processor seconds a check may take: seconds on the clock, for what sleeps or waits
MOST_PRINTED, MOST_LINES = 10_000, 8
FLOOD = 10**6  # bytes of output that take time

Tell = Callable[[dict[str, Any]], None]


class TimeUp(BaseException):
    """Raised inside the learner's code when its time is over; no `except Exception` of theirs catches it."""

    def __init__(self, line: Line | None) -> None:
        super().__init__("time is up")
        self.line = line


def limit(seconds: float, folder: Path) -> None:
    """Raise TimeUp after so much processor time, with the learner's line that was running."""

    def over(_: int, frame: FrameType | None) -> None:
        raise TimeUp(line_of(frame, folder))

    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def line_of(frame: FrameType | None, folder: Path) -> Line | None:
    """The innermost line that is the learner's own."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.parent == folder:
            return read_line(path, frame.f_lineno)
        frame = frame.f_back
    return None


def read_line(path: Path, number: int) -> Line:
    try:
        text = path.read_text(encoding="utf-8", errors="replace").splitlines()[number - 1]
    except (OSError, IndexError):
        text = ""
    return Line(str(path), number, text.strip())


def raised_in(error: BaseException, folder: Path) -> Line | None:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).parent == folder:
            return Line(frame.filename, frame.lineno or 0, (frame.line or "").strip())
    return None


# ---- one check -----------------------------------------------------------------------------------------------------


def judge_file(request: dict[str, Any], tell: Tell) -> Verdict:
    """Load the learner's file and check it; everything that can go wrong with somebody's code becomes a verdict."""
    folder = Path(request["folder"]).resolve()
    exercise = course()[request["exercise"]]
    names = {**file_names(), **request.get("names", {})}
    file = request.get("file") or names[exercise.name]
    where, reading = f"{file}", True

    def broken(kind: str, message: str, line: Line | None = None) -> Verdict:
        told = f", line {line.number}" if line and Path(line.file).name == where else ""
        return Verdict(exercise.name, BROKEN, "", kind, f"{where}{told}: {message}", line=line)

    try:
        limit(request.get("seconds") or exercise.seconds, folder)
        own = request.get("own", ())
        if request.get("task"):
            return finish_course(request, folder, tell)
        module = load_exercise(folder, exercise, course(), {**names, exercise.name: file}, own)
        reading = False
        missing = [part for part in exercise.parts if not hasattr(module, part)]
        if missing:
            anew = f"`clearhead learn reset {exercise.name}`"
            if file != names[exercise.name]:
                anew = f"remove the file: `clearhead learn bug {exercise.name}` writes it anew"
            return broken("missing", f"{missing[0]} is not defined; put it back, or {anew}")
        return check(exercise, module)
    except SyntaxError as error:
        number = error.lineno or 0
        path = Path(error.filename or file)
        return broken("syntax", f"{error.msg}", Line(str(path), number, (error.text or "").strip()))
    except TimeUp as error:
        spent = request.get("seconds") or exercise.seconds
        return broken("time", f"still running after {spent:g} seconds{why_late()}", error.line)
    except SystemExit as error:
        line = raised_in(error, folder)
        return broken("exit", "ends the program (sys.exit, exit or quit): leave it out", line)
    except EOFError as error:
        return broken("input", NO_INPUT.say, raised_in(error, folder))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        line = raised_in(error, folder)
        if line is None and not reading:
            raise
        said = str(error).strip().splitlines()
        return broken("import", f"{type(error).__name__}: {said[0] if said else 'no message'}", line)


def why_late() -> str:
    """A flood of output takes its time as well as a loop without an end."""
    printed = os.fstat(1).st_size / 10**6  # where output is caught
    if printed * 10**6 < FLOOD:
        return ": does a loop never end?"
    return f", and {printed:.0f} million characters were printed: print less, or does a loop never end?"


def finish_course(request: dict[str, Any], folder: Path, tell: Tell) -> Verdict:
    """The end: train the learner's model on a task, and save it as a run."""
    from clearhead.learn.ending import finish

    stand_in_for_others(folder, course(), file_names(), request["own"])
    run, steps = Path(request["run"]), request.get("steps")
    return finish(request["task"], run, steps, lambda *row: tell({"progress": row}))


def left_running(folder: Path) -> tuple[str, ...]:
    """Threads that the learner's code started and did not end."""
    frames = sys._current_frames()
    said = []
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.ident is None:
            continue
        line = line_of(frames.get(thread.ident), folder)
        if line is not None:
            said.append(f"a thread is still running, at line {line.number} of {Path(line.file).name}: {line.text}")
    return tuple(said)


def serve_one(request: dict[str, Any], tell: Tell) -> None:
    """In the child: check with output caught, answer, and end at once, whatever else still runs."""
    with tempfile.TemporaryFile() as caught:
        keep = os.dup(1), os.dup(2)
        sys.stdout.flush()
        os.dup2(caught.fileno(), 1)
        os.dup2(caught.fileno(), 2)
        verdict = judge_file(request, tell)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(keep[0], 1)
        os.dup2(keep[1], 2)
        caught.seek(0)
        printed = caught.read(MOST_PRINTED + 1).decode("utf-8", "replace")
    printed = shortened(printed)
    remarks = (*verdict.remarks, *left_running(Path(request["folder"]).resolve()))
    tell({"verdict": replace(verdict, printed=printed, remarks=remarks).to_json()})


def shortened(printed: str) -> str:
    """The first lines; a part is called many times, and says the same many times."""
    lines = list(dict.fromkeys(printed[:MOST_PRINTED].splitlines()))
    return "\n".join([*lines[:MOST_LINES], *(["…"] if len(lines) > MOST_LINES else [])])


# ---- the server ----------------------------------------------------------------------------------------------------


def main() -> None:
    import torch

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # input() finds the end of the file
    answers.write('{"ready": true}\n')

    def tell(row: dict[str, Any]) -> None:
        answers.write(json.dumps(row) + "\n")
        answers.flush()

    for line in requests:
        request = json.loads(line)
        if not hasattr(os, "fork"):
            serve_one(request, tell)
            os._exit(0)
        child = os.fork()
        if child == 0:
            os.setsid()
            try:
                serve_one(request, tell)
            except BaseException:
                tell({"failed": traceback.format_exc()})
            finally:
                os._exit(0)
        status = wait(child, request)
        tell({"ended": status})
        get_ready()


@cache
def get_ready() -> None:
    """While nobody waits: load what later checks need, so that every fork has it."""
    import torch

    from clearhead.doctor.causes import learned

    torch.optim.Adam([torch.zeros(1)])  # the first optimizer imports more than a second's worth of modules
    learned()


def wait(child: int, request: dict[str, Any]) -> str:
    """Until the child has ended, or its time on the clock is over. Says how it ended, if not as it should."""
    exercise: Exercise = course()[request["exercise"]]
    until = time.monotonic() + PATIENCE * (request.get("seconds") or exercise.seconds) + 5
    status = None
    while status is None and time.monotonic() < until:
        found, code = os.waitpid(child, os.WNOHANG)
        status = code if found else None
        time.sleep(0 if found else 0.005)
    late = status is None
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # and what it may have started
    if late:
        os.waitpid(child, 0)
        return "it did not end: it waits for something that never comes"
    code = os.waitstatus_to_exitcode(status or 0)
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return "" if code == 0 else f"it ended the process with status {code}"


if __name__ == "__main__":
    main()
