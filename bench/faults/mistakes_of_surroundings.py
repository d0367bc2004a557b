"""The world around a command: streams that are closed or full, a disk that cannot be written, no home, no folder."""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from bench.faults.command_child import CLOSED, UNCAUGHT, Ended, Surroundings, call, read_only
from bench.faults.mistakes_of_options import Command
from bench.faults.outcome import Trial
from bench.faults.sandbox import Sandbox

STDIN = {"stdin closed": {"stdin": CLOSED}}
STDOUT = {"stdout closed": {"stdout": CLOSED}, "stdout full": {"stdout": "/dev/full"}}
STDERR = {"stderr closed": {"stderr": CLOSED}, "stderr full": {"stderr": "/dev/full"}}
VARIABLES: dict[str, dict[str, str | None]] = {
    "HOME unset": {"HOME": None},
    "TERM=dumb": {"TERM": "dumb"},
    "COLUMNS=20": {"COLUMNS": "20"},
    "LANG=C": {"LANG": "C", "LC_ALL": "C"},
}
TIMED = {("profile",), ("lab", "run")}  # their output is never twice the same
WANT_A_FOLDER = {("train",)}  # some machines' matrix library ends a process that has none
FAMILY = "mistakes: surroundings"
READ_ONLY = "read-only disk"


def surroundings(commands: list[Command], place: Sandbox, small: bool) -> Iterator[Trial]:
    """Every command in every one; the sample: one that tells, one that writes files."""
    chosen = {("checkpoints",), ("average",)} if small else {one.path for one in commands}
    for command in commands:
        if command.path in chosen:
            yield from around(command, place)


def around(command: Command, place: Sandbox) -> Iterator[Trial]:
    """How the command ends in each of them, against how it ends in peace."""
    words, name, usual = command.base(), " ".join(command.path), Surroundings(place.here)

    @cache
    def peace() -> tuple[Ended, bool]:
        """And whether it writes anything."""
        before = place.snapshot()
        ended = call(words, usual)
        writes = set(place.snapshot().items()) != set(before.items())
        place.clean(before)
        return ended, writes

    def compare(fault: str, where: Surroundings, refused: str = "", other: list[str] | None = None) -> str:
        usually, writes = peace()
        if usually.status != 0:
            return f"cannot be tried: give words that work to EXTRA ({usually.err.strip()[-200:]})"
        if fault in STDOUT and usually.out:
            refused = "standard output"
        if fault == READ_ONLY and writes:
            refused = "ead-only file system"
        before = place.snapshot()
        ended = call(other or words, where)
        place.clean(before)
        same = fault in VARIABLES or refused or where.stdout is not None or command.path in TIMED
        wrong = broken(ended, refused, told=where.stderr is None)
        return wrong or ("" if same or ended.out == usually.out else "writes something else")

    def trial(fault: str, where: Surroundings, refused: str = "", other: list[str] | None = None) -> Trial:
        return Trial(FAMILY, f"{name}: {fault}", partial(compare, fault, where, refused, other))

    def in_a_folder_that_is_gone() -> str:
        peace()  # which clears away whatever is new
        gone = place.folder / "gone"
        gone.mkdir()
        refused = "the working folder has been removed" if command.path in WANT_A_FOLDER else ""
        wrong = compare("folder removed", replace(usual, folder=gone, before=gone.rmdir), refused)
        if gone.is_dir():
            gone.rmdir()
        return wrong

    def nobody_reads() -> str:
        ended, _ = peace()
        before = place.snapshot()
        wrong = pipe(words, usual, ended)
        place.clean(before)
        return wrong

    for fault, streams in {**STDIN, **STDOUT, **STDERR}.items():
        yield trial(fault, replace(usual, **streams))  # type: ignore[arg-type]
    if any(one.metavar == "FILE" and not one.is_option for one in command.parameters):
        without = [word for word in words if word not in (place.path("lines.txt"), place.path("ids.txt"))]
        yield trial("stdin closed and needed", replace(usual, stdin=CLOSED), "standard input", without)
    for fault, variables in VARIABLES.items():
        encoding = "ascii" if fault == "LANG=C" else "utf-8"
        yield trial(fault, replace(usual, variables=variables, encoding=encoding))
    yield Trial(FAMILY, f"{name}: nobody reads", nobody_reads)
    yield trial(READ_ONLY, replace(usual, before=read_only(place.folder)))
    yield Trial(FAMILY, f"{name}: folder removed", in_a_folder_that_is_gone)


def broken(ended: Ended, refused: str, told: bool) -> str:
    """What is wrong: anything but status 0, or a refusal in one line that says `refused`."""
    last = (ended.err.strip().splitlines() or [""])[-1][:300]
    if ended.hung or ended.status < 0 or ended.status in (UNCAUGHT, 120) or "Traceback" in ended.err:
        return f"status {ended.status}, hangs: {ended.hung}, {last}"
    if not refused:
        return "" if ended.status == 0 else f"status {ended.status}: {last}"
    if ended.status != 2 or (told and (refused not in last or not last.startswith("clearhead: error: "))):
        return f"status {ended.status}, wanted a refusal for {refused!r}: {last}"
    return ""


def pipe(words: list[str], usual: Surroundings, peace: Ended) -> str:
    """A reader who has left: quietly, with status 1 where there was something to write."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = call(words, replace(usual, stdout=str(Path("/proc/self/fd") / str(writing))))
    os.close(writing)
    wanted = 1 if peace.out else 0
    return "" if ended.status == wanted and "rror" not in ended.err else f"status {ended.status}: {ended.err[-200:]}"
