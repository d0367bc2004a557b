"""Finding and reading text files: paths as recipes write them, gzip, lines, and what to say when something is wrong.

A line ends at "\\n" and nowhere else (a "\\r" before it goes with it). Python's `splitlines` would also cut at form
feeds and at U+2028, which occur inside real sentences: from there on, two parallel files would no longer match.
"""

import glob
import json
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from clearhead.data.settings import FILE_KEYS, DataSettings, Files
from clearhead.errors import InputError
from clearhead.reading import LONGEST_LINE, opened_text, refuse_swollen
from clearhead.tokenizer.corpus import blocks

# A file with more broken lines than this is not UTF-8 with accidents, but in another encoding.
MOST_BROKEN = 0.1
BLOCK = 1 << 18  # bytes read at once
CHECKED = 64 << 20  # bytes, after which a packed file is asked how far it has swollen
LOOKED_AT = 40  # first lines by which JSON lines are known
T = TypeVar("T", bound=Any)
MARK = b"\xef\xbb\xbf"  # what some editors put in front of UTF-8


def data_folder() -> Path:
    """`$CLEARHEAD_DATA`, or where developers keep it: shared/data beside the project."""
    return Path(os.environ.get("CLEARHEAD_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def expand(path: str) -> Path:
    """A path of a recipe: `~`, `$CLEARHEAD_DATA`, `$STDLIB` (Python's own library) and the environment's variables."""
    known = {**os.environ, "CLEARHEAD_DATA": str(data_folder()), "STDLIB": sysconfig.get_paths()["stdlib"]}

    def value(found: re.Match[str]) -> str:
        if found[1] not in known:
            raise InputError(f"{path}: the variable ${found[1]} is not set")
        return known[found[1]]

    try:
        return Path(re.sub(r"\$\{?(\w+)\}?", value, path)).expanduser()
    except RuntimeError:  # of nobody, or of somebody without one
        raise InputError(f"{path}: nobody knows whose home that is; give the folder") from None


def anchor(settings: DataSettings, folder: Path) -> DataSettings:
    """The data's settings with relative paths made absolute, seen from `folder`: where the recipe lies."""
    return anchored(settings, FILE_KEYS, folder)


def anchored(settings: T, keys: Sequence[str], folder: Path) -> T:
    """The same settings with the paths under these keys made absolute."""

    def absolute(path: str) -> str:
        return path if path.startswith(("~", "$")) else str(folder.absolute() / path)

    changes: dict[str, Files] = {}
    for key in keys:
        files = getattr(settings, key)
        if files is not None:
            changes[key] = absolute(files) if isinstance(files, str) else tuple(map(absolute, files))
    return replace(settings, **changes)


def find(files: Files) -> list[Path]:
    """Paths and patterns to the files they name, in the order given and alphabetically within a pattern."""
    found: list[Path] = []
    for pattern in [files] if isinstance(files, str) else files:
        path = expand(pattern)
        matches = [path] if path.exists() else [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        if not matches:
            raise InputError(missing(path))
        found += [match for match in matches if match.is_file()]
    if not found:
        other = "" if all(match.is_dir() for match in matches) else ", pipes or devices"
        raise InputError(f"{files}: no file there, only folders{other}; name the files, for example folder/*.txt")
    return found


# Where the data of the packaged recipes can be had, by their folder in $CLEARHEAD_DATA.
SOURCES = {
    "multi30k": "train and val, .en.gz and .de.gz, from https://github.com/multi30k/dataset, data/task1/raw",
    "tinyshakespeare": "input.txt from https://github.com/karpathy/char-rnn, data/tinyshakespeare",
}


def missing(path: Path) -> str:
    """What to say of a path that does not exist: of data that nobody has put there yet, where to get it."""
    if not path.is_relative_to(data_folder()):
        return f"{path}: no such file"
    within = path.relative_to(data_folder())
    folder = os.environ.get("CLEARHEAD_DATA")
    source = SOURCES.get(within.parts[0]) if within.parts else None
    known = data_folder().is_dir()  # set, or a developer's
    found = f"{path}: no such file" if known else f"$CLEARHEAD_DATA/{within}: no such file"
    if not known:
        state = f"is {folder}, which is no folder" if folder else "is not set"
        found += f", because CLEARHEAD_DATA {state}; set it to the folder that holds the data"
    return found + (f"; {within.parts[0]} is to hold {source}" if source else "")


def refuse_missing(path: Path) -> None:
    try:
        there = path.exists()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if not there:
        raise InputError(missing(path))


def decode(line: bytes) -> str | None:
    """Text, or None where it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def line_blocks(path: Path) -> Iterator[bytes]:
    """The lines of a file, plain or gzip, some thousands at a time, without the last line end: each line by itself
    would cost more than what is done with it. No more is held than that, or than the longest line takes."""
    refuse_missing(path)
    with opened_text(path) as file:
        number = read = checked = 0  # lines that were given on, bytes that were read
        rest = b""
        while piece := file.read1(BLOCK):  # of a pipe, what there is
            read += len(piece)
            if read - checked > CHECKED:
                refuse_swollen(path, checked := read)
            block, end, rest = (rest + piece).rpartition(b"\n") if b"\n" in piece else (b"", b"", rest + piece)
            if max(len(block), len(rest)) > LONGEST_LINE:
                refuse_long(path, number, block.split(b"\n") if end else [], rest)
            if end:
                yield block.removeprefix(MARK) if number == 0 else block
                number += block.count(b"\n") + 1
        if not read:
            raise InputError(f"{path}: the file is empty")
        if rest:
            yield rest.removeprefix(MARK) if number == 0 else rest


def refuse_long(path: Path, before: int, lines: list[bytes], rest: bytes) -> None:
    for number, line in enumerate([*lines, rest], before + 1):
        if len(line) > LONGEST_LINE:
            raise InputError(f"{path}, line {number}: longer than {LONGEST_LINE >> 20} MiB, the most a line may have")


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file one by one, in as little memory as the longest takes."""
    for block in line_blocks(path):
        for line in block.split(b"\n"):
            yield line.removesuffix(b"\r")


def decoded(block: bytes) -> list[str | None]:
    """The lines of a block as text, with any "\\r" at their ends; None for one that is not UTF-8."""
    try:
        return list(block.decode().split("\n"))
    except UnicodeDecodeError:
        return [decode(line) for line in block.split(b"\n")]


def text_lines(path: Path) -> Iterator[str]:
    """The same as text. A line that is not UTF-8 is refused."""
    for line in some_lines(path, strict=True):
        assert line is not None
        yield line


def some_lines(path: Path, strict: bool) -> Iterator[str | None]:
    """The same, where a line that is not UTF-8 is None, unless `strict` or there are many. JSON lines are refused."""
    first: tuple[int, bytes] | None = None
    start: list[str | None] = []
    number = broken = 0
    for block in line_blocks(path):
        lines = decoded(block)
        if number < LOOKED_AT:
            start += lines[: LOOKED_AT - number]
            if len(start) == LOOKED_AT:
                refuse_json_lines(path, start)
        if None in lines:
            place = lines.index(None)
            first = first or (number + place + 1, block.split(b"\n")[place].removesuffix(b"\r"))
            if strict:
                yield from lines[:place]
                raise not_utf8(path, *first)
            broken += lines.count(None)
        number += len(lines)
        yield from (line and line.removesuffix("\r") for line in lines) if b"\r" in block else lines
    if number < LOOKED_AT:
        refuse_json_lines(path, start)
    if first is not None and broken > MOST_BROKEN * number:
        raise not_utf8(path, *first, f" ({broken:,} of {number:,} lines are not)")


def text_blocks(path: Path) -> Iterator[str]:
    """The text of a file in blocks that end where words do. What is not UTF-8 is refused, with its line."""
    refuse_missing(path)
    with opened_text(path) as file:
        first, read = True, 0
        try:
            for block in blocks(file, "strict"):
                read += len(block)
                refuse_swollen(path, read)
                yield block.removeprefix("\ufeff") if first else block
                first = False
        except UnicodeDecodeError:
            for number, line in enumerate(raw_lines(path), 1):
                if decode(line) is None:
                    raise not_utf8(path, number, line) from None
            raise
        if first:
            raise InputError(f"{path}: the file is empty")


def count_lines(path: Path) -> int:
    return sum(1 for _ in text_lines(path))


def read_lines(path: Path) -> list[str]:
    """All lines of a file."""
    return list(text_lines(path))


def not_utf8(path: Path, number: int, line: bytes, extent: str = "") -> InputError:
    """What to say of a line in another encoding."""
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) and number == 1:
        return InputError(f"{path}: UTF-16; convert it, for example with `iconv -f utf-16 -t utf-8`")
    try:
        line.decode()
        start = 0
    except UnicodeDecodeError as error:
        start = error.start
    return InputError(
        f"{path}, line {number}: not UTF-8: byte 0x{line[start]:02X} at byte {start + 1}{extent}; if the file is in "
        "another encoding, convert it, for example with `iconv -f latin1 -t utf-8`"
    )


def refuse_json_lines(path: Path, lines: Iterable[str | None]) -> None:
    """Text is wanted: lines that are JSON objects would be learned with their braces, keys and escapes."""
    seen, keys = 0, set[str]()
    for line in islice(filter(str.strip, filter(None, lines)), 20):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(row, dict):
            return
        seen, keys = seen + 1, keys & set(row) if seen else set(row)
    if seen > 1 and keys:
        key = "text" if "text" in keys else min(keys)
        raise InputError(
            f"{path}: JSON lines, and text is wanted; name it .jsonl and its field, data.text_column = {key!r}, or "
            f"take the text out, for example with `jq -r .{key}` (they have the keys {', '.join(sorted(keys))})"
        )
