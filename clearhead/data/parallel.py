"""Parallel text: two files whose lines translate each other, or one file with both in columns.

Everything rests on line n of one file belonging to line n of the other. So nothing that could shift one against the
other is tolerated, and what cannot be used is taken out on both sides at once, counted, and reported with its line.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

from clearhead.data.batch import Tally
from clearhead.data.files import some_lines
from clearhead.data.tables import Cells, Column, Wanted, read_table
from clearhead.errors import InputError

T = TypeVar("T")


class PairRow(NamedTuple):
    """A usable pair, and the line (from 1) it comes from."""

    line: int
    source: str
    target: str


def read_pairs(
    paths: Sequence[Path], columns: tuple[Column | None, Column | None], strict: bool, tally: Tally
) -> Iterator[PairRow]:
    """Two files, line by line, or the columns of one. `strict` for validation and test, which must be used whole or not
    at all. White space around a text is not part of it."""
    names = str(paths[0]), str(paths[-1])
    found: Iterator[tuple[int, str | None, str | None]]
    if len(paths) == 1:
        wanted = Wanted(("source_column", "target_column"), columns, ("source", "target"))
        found = columns_of(read_table(paths[0], wanted, strict, tally))
    else:
        found = side_by_side(paths[0], paths[1], strict)
    none = True
    for line, source, target in found:
        if source and target and (pair := PairRow(line, source.strip(), target.strip())).source and pair.target:
            none = False
            yield pair
            continue
        reason, file = unusable(source, target, names)
        if strict and reason == "empty on one side":
            raise InputError(f"{file}, line {line}: empty, but its other side is not")
        else:
            tally.note(reason, f"{file}, line {line}")
    if none:
        both = " and ".join(dict.fromkeys(names))
        why = ", ".join(f"{one.count:,} {one.reason}" for one in tally.skipped() if one.what == "skipped")
        raise InputError(f"{both}: no line can be used; {why}")


def columns_of(rows: Iterable[Cells]) -> Iterator[tuple[int, str | None, str | None]]:
    for line, cells in rows:
        source, target = (None, None) if cells is None else cells or ("", "")
        yield line, source, target


def side_by_side(source: Path, target: Path, strict: bool) -> Iterator[tuple[int, str | None, str | None]]:
    """The lines of two files, of which both must have as many."""
    end = object()
    lines = some_lines(source, strict), some_lines(target, strict)
    for number, (one, other) in enumerate(zip_longest(*lines, fillvalue=end), 1):
        if one is end or other is end:
            longer = number + sum(1 for _ in lines[one is end])
            counts = (number - 1, longer) if one is end else (longer, number - 1)
            raise InputError(
                f"{source} has {counts[0]:,} lines, but {target} has {counts[1]:,}: line n of one must belong to "
                "line n of the other"
            )
        yield number, one, other  # type: ignore[misc]


def unusable(source: str | None, target: str | None, files: tuple[str, str]) -> tuple[str, str]:
    """Why a pair cannot be used, and the file that is to blame."""
    if source is None or target is None:
        return "not UTF-8", files[source is not None]
    both = not source.strip() and not target.strip()
    return "empty on both sides" if both else "empty on one side", files[bool(source.strip())]


def hold_out(items: Iterable[T], share: float | None, part: str = "train") -> Iterator[tuple[str, T]]:
    """Every so-manieth for validation, the rest for training; not the last ones: many files are sorted. Of fewer than
    so many, the last. Without a share, all are of one `part`."""
    if share is None:
        for item in items:
            yield part, item
        return
    step, number = max(2, round(1 / share)), -1
    waiting: list[T] = []  # one that may turn out to be the last
    for number, item in enumerate(items):
        for before in waiting:
            yield "train", before
        waiting = []
        if number % step == step - 1:
            yield "validation", item
        elif number < step:
            waiting = [item]
        else:
            yield "train", item
    if number < 1:
        raise InputError(f"only {number + 1} example to train on; none can be kept for validation")
    for last in waiting:
        yield "validation" if number < step else "train", last
