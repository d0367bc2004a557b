"""One command in a process of its own, forked from one that has imported everything: as quick as a call, and as apart
from us as a program. Whatever it does (a signal, a hang, all memory there is) is an answer, not our end."""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from bench.faults.fork import fork
from clearhead.cli.main import main

MEMORY = 3 << 30  # bytes that a command may take beyond what the process has when it is forked
SECONDS = 60  # after which a command counts as hanging
CLOSED = "closed"
UNCAUGHT = 70  # no status of ours: an exception came through


@dataclass(frozen=True)
class Surroundings:
    """Where a command runs. A stream is a path to open, or CLOSED; an unset one is kept and given back."""

    folder: Path  # to stand in
    stdin: str = os.devnull
    stdout: str | None = None
    stderr: str | None = None
    variables: Mapping[str, str | None] | None = None  # of the environment; None: unset
    encoding: str = "utf-8"  # of the streams, as the locale would have it
    before: Callable[[], object] | None = None  # called in the child, before the command


@dataclass(frozen=True)
class Ended:
    """What became of it."""

    status: int  # negative: minus the signal that ended it
    out: bytes
    err: str
    seconds: float

    @property
    def hung(self) -> bool:
        return self.seconds >= SECONDS


def call(words: list[str], where: Surroundings) -> Ended:
    """`clearhead words…`, forked."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        child = fork()
        if child == 0:
            _run(words, where, out.fileno(), err.fileno())
        status = _wait(child, began + SECONDS)
        out.seek(0)
        err.seek(0)
        return Ended(status, out.read(), err.read().decode("utf-8", "replace"), time.monotonic() - began)


def _wait(child: int, until: float) -> int:
    """Its exit status; beyond its time it is ended with all that it started."""
    watched = os.pidfd_open(child)
    try:
        if not select.select([watched], [], [], max(0, until - time.monotonic()))[0]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
    finally:
        os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(words: list[str], where: Surroundings, out: int, err: int) -> NoReturn:
    status = UNCAUGHT
    try:
        os.setpgid(0, 0)
        os.chdir(where.folder)
        for name, value in (where.variables or {}).items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        _streams(where, out, err)
        sys.argv = ["clearhead", *words]
        if where.before is not None:
            where.before()
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        try:
            sys.stdout.flush()
        except Exception:
            status = 120  # as Python ends where it cannot write what is left
    except BaseException:
        os.write(err, traceback.format_exc().encode())
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _streams(where: Surroundings, out: int, err: int) -> None:
    """The three streams as Python makes them when it starts: None where there is nothing."""
    for number, wanted, kept in ((0, where.stdin, None), (1, where.stdout, out), (2, where.stderr, err)):
        if wanted == CLOSED:
            os.close(number)
            continue
        handle = kept if wanted is None else os.open(wanted, os.O_RDONLY if number == 0 else os.O_WRONLY)
        assert handle is not None
        os.dup2(handle, number)
    made = []
    for number, wanted in enumerate((where.stdin, where.stdout, where.stderr)):
        mode = "r" if number == 0 else "w"
        errors = "backslashreplace" if number == 2 else "strict"
        closed = wanted == CLOSED
        made.append(None if closed else open(number, mode, encoding=where.encoding, errors=errors, closefd=False))  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = made  # type: ignore[assignment,misc]


def nobody() -> None:
    """Go on as a user without rights, because root may read what nobody may."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def read_only(folder: Path) -> Callable[[], None]:
    """For `before`: this process finds the folder on a disk that cannot be written, others do not notice."""

    def remount() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        new_namespace, private, bind, remount_read_only = 0x20000, 0x4000 | 1 << 18, 4096, 4096 | 32 | 1
        place = os.fsencode(folder)
        done = libc.unshare(new_namespace) == 0
        done = done and libc.mount(None, b"/", None, private, None) == 0
        done = done and libc.mount(place, place, None, bind, None) == 0
        done = done and libc.mount(None, place, None, remount_read_only, None) == 0
        if not done:  # nobody but root may: then Python's own calls are refused
            sys.addaudithook(_refuse_writing(folder))
        os.chdir(os.getcwd())  # from the old place into the new one that covers it

    return remount


WRITING = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"})


def _refuse_writing(folder: Path) -> Callable[[str, tuple], None]:
    inside = str(folder)

    def refuse(event: str, arguments: tuple) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (opened or event in WRITING) and not isinstance(arguments[0], int):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if path.startswith(inside):
                raise OSError(30, os.strerror(30), path)

    return refuse
