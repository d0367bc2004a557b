"""Every operation by which a command changes a folder, numbered in the order in which they come; and a fault in place
of any of them.

A command runs in a forked process, so that torch is imported once for thousands of them. There, Python's audit events
tell of everything that is opened for writing, made, renamed or removed; `write` and `fsync` have no event and are
wrapped. All files of the package are written by Python, so nothing escapes; `strace` shows the same list.
"""

import builtins
import io
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.faults.fork import fork
from clearhead.cli.main import main
from clearhead.data.settings import DataSettings
from clearhead.training.config import Recipe, TrainingSettings
from clearhead.training.session import train

PATIENCE = 120  # seconds, after which a process is taken to hang
NAMED = {  # audit event -> where its arguments hold the name, and the folder that the name is relative to
    "os.mkdir": (0, 2),
    "os.rename": (0, 2),
    "os.remove": (0, 1),
    "os.rmdir": (0, 1),
    "os.truncate": (0, None),
    "os.link": (1, 3),
    "os.symlink": (1, 2),
    "os.chmod": (0, 2),
}

# A training that does all that trainings do in as few steps as that takes: validations that improve and that do not,
# checkpoints at both and in between, old ones removed, an average, a test; dropout is on.
RECIPE = Recipe(
    DataSettings(task="copy", examples=60, held_out=10, symbols=6, longest=6),
    {"preset": "tiny", "d_model": 8, "heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 1},
    training=TrainingSettings(
        steps=8,
        max_tokens=64,
        warmup=2,
        peak=0.2,
        seed=8,  # the second of three validations is worse than the first, the third is better
        validate_every=3,
        checkpoint_every=2,
        keep_last=1,
        average=2,
        log_every=1,
        samples=0,
        threads=1,
    ),
)

# What is done before an operation on a path. The last argument writes half of what was to be written, and else nothing.
Meet = Callable[[str, Path, Callable[[], None]], None]


@dataclass(frozen=True)
class Ended:
    """How a command ended: minus the signal, or the status; and all that it said."""

    status: int
    said: str


def intercept(folder: Path, meet: Meet) -> None:
    """From now on, and in this process for good, meet every operation that changes something inside a folder."""
    root = os.path.realpath(folder)

    def where(name: Any, folder: int | None = None) -> str:
        if isinstance(name, int):
            return os.readlink(f"/proc/self/fd/{name}")
        within = os.readlink(f"/proc/self/fd/{folder}") if folder is not None and folder >= 0 else os.getcwd()
        return os.path.normpath(os.path.join(within, os.fsdecode(name)))

    def met(operation: str, path: str, half: Callable[[], None] = lambda: None) -> None:
        if path == root or path.startswith(root + os.sep):
            meet(operation, Path(path), half)

    def hear(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and not isinstance(given[0], int):
            if given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                met("open", where(given[0]))
        elif event in NAMED:
            name, folder = NAMED[event]
            met(event.removeprefix("os."), where(given[name], None if folder is None else given[folder]))

    def watched(real: Callable[..., Any], operation: str) -> Callable[..., Any]:
        def call(handle: int, *given: Any) -> Any:
            met(operation, where(handle))
            return real(handle, *given)

        return call

    def opened(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        made = real_open(file, mode, *given, **named)
        return made if isinstance(file, int) or not set(mode) & set("wax+") else Torn(made, where(file), met)

    sys.addaudithook(hear)
    os.fsync, os.write = watched(os.fsync, "fsync"), watched(os.write, "write")
    real_open, builtins.open, io.open = io.open, opened, opened


class Torn:
    """A file of which a write can be met half-way."""

    def __init__(self, file: Any, path: str, met: Callable[..., None]) -> None:
        self.file, self.path, self.met = file, path, met

    def write(self, content: Any) -> int:
        def half() -> None:
            self.file.write(content[: len(content) // 2])
            self.file.flush()

        self.met("write", self.path, half)
        return self.file.write(content)

    def __enter__(self) -> "Torn":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def warm_up(folder: Path) -> None:
    """Train once in this process: what that imports and prepares, no process forked from it needs to."""
    torch.set_num_threads(1)
    train(RECIPE, folder, quiet=True)


def command(arguments: Sequence[str], first: Callable[[], None] = lambda: None, ranks: int = 1) -> list[Ended]:
    """`clearhead ARGUMENTS` in a process of its own, or in several that torchrun would have joined; `first` is called
    in each before it begins."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    said = [tempfile.TemporaryFile() for _ in range(ranks)]  # noqa: SIM115 (closed by whoever reads it)
    sys.stdout.flush()  # or each child would say once more what this process was about to say
    children = []
    for rank in range(ranks):
        if (child := fork()) == 0:
            status = 70
            try:
                if ranks > 1:
                    os.environ.update(address | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
                for stream in (1, 2):
                    os.dup2(said[rank].fileno(), stream)
                sys.stdout, sys.stderr = (real_text(stream) for stream in (1, 2))
                torch.set_num_threads(1)
                sys.argv = ["clearhead", *arguments]
                first()
                main()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return [Ended(status, text_of(file)) for status, file in zip(wait(children), said, strict=True)]


def real_text(stream: int) -> Any:
    return io.TextIOWrapper(io.FileIO(stream, "w", closefd=False), write_through=True)


def text_of(file: Any) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")


def wait(children: list[int]) -> list[int]:
    """Until all have ended; once one has failed, the others get some time to notice."""
    ended: dict[int, int] = {}
    limit = time.monotonic() + PATIENCE
    while len(ended) < len(children):
        for child in set(children) - ended.keys():
            if (found := os.waitpid(child, os.WNOHANG))[0]:
                ended[child] = os.waitstatus_to_exitcode(found[1])
            elif time.monotonic() > limit:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    return [ended[child] for child in children]


def spread(count: int, sample: int | None) -> list[int]:
    """All numbers from 1, or so many of them, evenly spread."""
    if sample is None or sample >= count:
        return list(range(1, count + 1))
    return [round(1 + i * (count - 1) / (sample - 1)) for i in range(sample)]


def operations(folder: Path, arguments: Sequence[str], watch: Callable[[Path, Meet], None] = intercept) -> list[str]:
    """All that a command does to a folder, in order, as `rename latest`; with N for the number of the process, so that
    it is the same list every time."""
    reading, writing = os.pipe()

    def tell(operation: str, path: Path, half: Callable[[], None]) -> None:
        real_write(writing, f"{operation} {path.relative_to(folder.resolve())}\n".encode())

    real_write = os.write
    (end,) = command(arguments, lambda: watch(folder, tell))
    os.close(writing)
    with open(reading) as told:
        found = [re.sub(r"(?<=[ /])(\.[^ /]+)\.\d+(?=/|$)", r"\1.N", line) for line in told.read().splitlines()]
    if end.status:
        raise RuntimeError(f"clearhead {' '.join(arguments)} ended with {end.status}: {end.said}")
    return found
