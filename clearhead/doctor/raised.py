"""What a subject raises: where in its own code, and whether it crashed or refused.

A model that refuses an input by an assertion or a `raise` of its own says what it does not take: nothing can be asked
of it there. One that fails inside an operation, on an input like others that worked, has a bug that does not hide.
"""

import linecache
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

HERE = str(Path(__file__).parent)
HOSTS = str(Path(__file__).parent / "hosts")
TORCH = str(Path(torch.__file__).parent)


def theirs(filename: str) -> bool:
    """Is this a file of the subject: not of torch, nor of the doctor?"""
    ours = filename.startswith(HERE) and not filename.startswith(HOSTS)
    return not (ours or filename.startswith((TORCH, "<frozen")) or "/contextlib.py" in filename)


def line(filename: str, number: int) -> str:
    """A line as findings show it."""
    return f"{filename}:{number}: {linecache.getline(filename, number).strip()}"


class Misshapen(Exception):
    """The outputs have another shape than for other inputs."""


class Raised(RuntimeError):
    """One of the subject's functions raised."""

    def __init__(self, what: str, error: BaseException, given: tuple[Any, ...] = ()) -> None:
        self.what = what  # the field of the description that was called
        self.kind = type(error).__name__
        self.reason = (str(error).strip() or "without a message").splitlines()[0]
        self.shapes = [tuple(x.shape) for x in given if isinstance(x, Tensor)]
        self.where, self.refused = place(error)
        super().__init__(self.told())

    def told(self) -> str:
        if self.kind == Misshapen.__name__:
            return f"{self.what} {self.reason}"
        shapes = f" for {' and '.join(map(str, self.shapes))}" if self.shapes else ""
        return f"{self.what} raised {self.kind}{shapes}: {self.reason}"


def place(error: BaseException) -> tuple[str, bool]:
    """The innermost line of the subject's own code, and whether that line refuses on purpose."""
    where, last = "", ""
    step: TracebackType | None = error.__traceback__
    while step is not None:
        filename = step.tb_frame.f_code.co_filename
        last = line(filename, step.tb_lineno)
        where = last if theirs(filename) else where
        step = step.tb_next
    deliberate = isinstance(error, AssertionError) or ": raise " in where
    # a kernel that does not exist for this type on this machine is no one's mistake
    return where, (deliberate and where == last) or isinstance(error, NotImplementedError)
