"""A command in a forked process: everything is imported once, and a crash, a hang or a grab for memory stays there."""

import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import torch

import clearhead.decoding.pictures
import clearhead.training.session  # noqa: F401 (imported here, so that no child needs to)
from bench.faults.fork import CACHE, fork
from clearhead.cli.main import main
from clearhead.cost.account import Size, account
from clearhead.model import configure

# What commands import, or libraries do when they are first asked for something: done once, here.
for _module in ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "sacrebleu.metrics"):
    import_module(_module)
for _module in ("pydantic.fields", "pydantic.types", "typer._adapters", "clearhead.cost.sheet"):
    import_module(_module)
for _module in ("clearhead.serve.server", "clearhead.serve.description", "clearhead.decoding.classify"):
    import_module(_module)
torch.empty(2, device="meta").normal_()
torch.optim.Adam([torch.zeros(1, requires_grad=True)])
account(configure("tiny"), Size(1, 4))
import_module("matplotlib.figure").Figure().subplots().figure.savefig(io.BytesIO())

MEMORY = 3 << 30  # bytes of address space on top of what is taken already
PATIENCE = 60.0  # seconds, far more than any command here needs


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status, or minus the signal; None if it had to be stopped."""

    status: int | None
    out: bytes
    err: str

    def fault(self) -> str:
        """What no command may ever do, if it did."""
        if self.status is None:
            return "it did not end"
        if self.status < 0:
            return f"ended by {signal.Signals(-self.status).name}: {self.err[-300:]}"
        if "Traceback (most recent call last)" in self.err:
            return f"a traceback: {self.err.strip().splitlines()[-1][:300]} {self.err.strip()[-700:]!r}"
        if self.status not in (0, 2):
            return f"status {self.status}: {self.err[-300:]}"
        if self.status == 2 and not self.complaint.startswith("clearhead: error: "):
            return f"status 2 without a word: {self.err[-300:]!r}"
        return ""

    @property
    def complaint(self) -> str:
        """The last line on standard error, which says what was wrong."""
        return self.err.rstrip("\n").rpartition("\n")[2]


def caching_in(folder: Path) -> Callable[[], None]:
    """For `first`: the cache of data is here."""
    return partial(os.environ.__setitem__, CACHE, str(folder))


def call(
    words: Sequence[object],
    first: Callable[[], None] = lambda: None,
    folder: Path | None = None,
    patience: float = PATIENCE,
) -> Ended:
    """`clearhead words…`, with an empty standard input; `first` is called in the process before it begins."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = fork()
        if child == 0:
            _run(words, first, folder, out.fileno(), err.fileno())
        status = _wait(child, patience)
        out.seek(0)
        err.seek(0)
        return Ended(status, out.read(), err.read().decode("utf-8", "backslashreplace"))


def _run(words: Sequence[object], first: Callable[[], None], folder: Path | None, out: int, err: int) -> None:
    """In the child: never returns."""
    status = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))  # type: ignore[misc]
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.BufferedWriter(io.FileIO(n, "w", closefd=False))) for n in (1, 2))
        torch.set_num_threads(1)
        if folder is not None:
            os.chdir(folder)
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["clearhead", *map(str, words)]
        first()
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _wait(child: int, patience: float) -> int | None:
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
