"""Files from others, read within bounds: what is asked of a file before its contents are believed.

A file may be anything: endless, a pipe that nobody writes to, a folder, brackets nested a million deep, numbers of a
million digits, a gigabyte packed into a megabyte. Each of these is one line that names the file, never a traceback, a
wait or all the memory there is. Nothing that is read here is ever executed.
"""

import gzip
import io
import json
import os
import stat
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from clearhead.errors import InputError

SETTINGS = 16 << 20  # bytes of a file of settings, state or names; real ones have a few thousand
LONGEST_LINE = 8 << 20  # bytes of a line that a filter takes; the rest of a longer one is passed over
NO_LINES = 1 << 30  # bytes without a line end after which a file is no text at all
UNPACKED, RATIO = 256 << 20, 100  # gzip may unpack to this many bytes, or to this many times its size


def memory() -> int:
    """Bytes that a file may have to be read whole: half of what this machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 1 << 40


@contextmanager
def opened(path: str | os.PathLike[str], pipes: bool = True) -> Iterator[io.BufferedReader]:
    """A file, or a pipe that somebody writes to, for reading; folders and devices are refused, and pipes if need be."""
    try:
        # a FIFO that nobody writes to would be waited for, for ever: without blocking it is an empty one
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    mode = os.fstat(handle).st_mode
    if not (stat.S_ISREG(mode) or (pipes and (stat.S_ISFIFO(mode) or os.isatty(handle)))):
        os.close(handle)
        found = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"
        raise InputError(f"cannot read {path}: it is {found}")
    if hasattr(os, "set_blocking"):
        os.set_blocking(handle, True)
    with open(handle, "rb") as file:
        try:
            yield file
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def read_whole(path: str | os.PathLike[str], most: int | None = None, pipes: bool = True) -> bytes:
    """The bytes of a file that has at most so many, or as many as half the memory holds."""
    limit = memory() if most is None else most
    with opened(path, pipes) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            content = b"" if size > limit else _upto(file, limit + 1, size + 1)
        except MemoryError:
            raise InputError(f"cannot read {path}: its {size:,} bytes do not fit into memory") from None
    if max(size, len(content)) > limit:
        why = "this machine's memory allows" if most is None else "such a file may have"
        raise InputError(f"cannot read {path}: it has {size or len(content):,} bytes or more, {why} {limit:,}")
    return content


def _upto(file: Any, most: int, expected: int = 0) -> bytes:
    """At most so many bytes, in pieces: asked for all at once, they would be allocated before there are any. What is
    expected comes in one piece, which is not copied."""
    pieces, total = [], 0
    while total < most and (piece := file.read(min(max(1 << 20, expected - total), most - total))):
        pieces.append(piece)
        total += len(piece)
    return b"".join(pieces)


def refuse_swollen(path: str | os.PathLike[str], unpacked: int) -> None:
    """One that grows beyond all text (RATIO) while it is unpacked is made to fill disks, and refused."""
    size = os.stat(path).st_size
    most = max(UNPACKED, RATIO * size)
    if size and unpacked > most:
        raise InputError(f"{path}: its {size:,} bytes of gzip unpack to more than {most:,}, which no text does")


def lines_of(file: BinaryIO, name: object) -> Iterator[tuple[bytes, bool]]:
    """Each line without its end, and whether it is whole: beyond LONGEST_LINE the rest is passed over."""
    while line := file.readline(LONGEST_LINE + 1):
        whole = line.endswith(b"\n") or len(line) <= LONGEST_LINE
        passed, ended = len(line), whole
        while not ended and (rest := file.readline(1 << 20)):
            passed, ended = passed + len(rest), rest.endswith(b"\n")
            refuse_endless(passed, name)
        yield line.removesuffix(b"\n")[:LONGEST_LINE], whole


def refuse_endless(passed: int, name: object) -> None:
    """So many bytes without a line end are not lines of text."""
    if passed > NO_LINES:
        raise InputError(f"cannot read {name}: more than {NO_LINES:,} bytes without a line end are no lines of text")


@contextmanager
def opened_text(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """The same as `opened`, unpacked as it is read if it is gzip."""
    with opened(path) as file:
        if file.peek(2)[:2] != b"\x1f\x8b":
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file) as packed:
                yield packed  # type: ignore[misc]
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path}: cannot read it: damaged gzip: {error}") from None


def parse_json(content: bytes | str, where: object) -> Any:
    """A JSON value; `where` names the file in messages."""
    try:
        return json.loads(content)
    except RecursionError:
        raise InputError(f"{where} is not JSON that can be read: it is nested too deeply") from None
    except (ValueError, MemoryError) as error:  # ValueError: also not UTF-8, and numbers of thousands of digits
        raise InputError(f"{where} is not JSON: {error}") from None


def parse_toml(content: bytes, where: object) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise InputError(f"{where} is not valid TOML: it is nested too deeply") from None
    except (ValueError, MemoryError) as error:
        raise InputError(f"{where} is not valid TOML: {error}") from None
