"""Standard input, output and error as a command may find them: closed, full, or with nobody at the other end.

What is written to standard output is the result, so a write that fails is an error that blames standard output. What
is written to standard error is only told, so a failure there is passed over: a training must not end because the
terminal that watched it has closed. (A reader of the output who leaves early, as `head` does, is met in main.)
"""

import errno
import io
import os
import sys
from typing import Any

from clearhead.errors import InputError


class Results(io.FileIO):
    """Standard output: what cannot be written is a mistake that has a name."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            raise
        except OSError as error:
            why = "it is closed" if error.errno == errno.EBADF else error.strerror
            raise InputError(f"cannot write to standard output: {why}") from None


class Remarks(io.FileIO):
    """Standard error: what cannot be written is let go."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def prepare_streams() -> None:
    """Make the three streams safe to use, unless a test or a caller has put others in their place."""
    # A free number would go to the next file that is opened, which would then get what is written to the stream. What
    # takes its place cannot be read or written either, so that the command that tries is told.
    for number, way in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, way)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(Results(1, "wb", closefd=False), sys.stdout, "replace")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(Remarks(2, "wb", closefd=False), sys.stderr, "backslashreplace")


def _text(raw: io.FileIO, like: Any, errors: str) -> io.TextIOWrapper:
    """Text on top of a stream, in the encoding and the manner of the one that it replaces."""
    encoding = "utf-8" if like is None else like.encoding
    lines = like is not None and like.line_buffering
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=lines, write_through=False)


def abandon_output() -> None:
    """Nothing more can be written: keep Python from trying once again, and complaining, while it shuts down."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
