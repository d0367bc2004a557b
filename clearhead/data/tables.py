"""Files with columns: TSV, CSV with quotes, and JSON lines, told apart by how their names end; plain or gzip.

A column is chosen by its name (in the first line, or as a field of the JSON objects) or by its number from 1. Where
none is chosen, the usual names are looked for, then the usual places. What is left out is said; what does not fit is
refused with its line.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from clearhead.data.batch import Tally
from clearhead.data.files import not_utf8, raw_lines, some_lines
from clearhead.errors import InputError, require
from clearhead.reading import LONGEST_LINE

Column = int | str
Cells = tuple[
    int, list[str | None] | None
]  # the line, and the chosen cells in order; none: a blank line; None: not UTF-8

HALF = re.compile("[\ud800-\udfff]")  # which JSON can write, as \ud800, and UTF-8 cannot
ENDINGS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True)
class Wanted:
    """The columns to read: the settings that choose them, the usual names, and which of them may be missing."""

    keys: tuple[str, ...]
    asked: tuple[Column | None, ...]
    usual: tuple[str, ...]
    optional: tuple[str, ...] = ()


def form_of(path: Path) -> str:
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    return ENDINGS.get(suffix.lower(), "tsv")


def read_table(path: Path, wanted: Wanted, strict: bool, tally: Tally | None = None) -> Iterator[Cells]:
    """The rows of a file; a blank line has no cells. Columns that nobody asked for and nobody reads are tallied."""
    form = form_of(path)
    if form == "jsonl":
        yield from read_objects(path, wanted)
        return
    first: list[str] = []
    places: list[int | None] = []
    for line, cells in read_quoted(path) if form == "csv" else read_tabs(path, strict):
        if cells is None:
            yield line, None
            continue
        if not cells:
            yield line, []
            continue
        if not first:
            first = cells
            places, header = find_columns(cells, wanted, path)
            if tally is not None and len(first) > len(places) and set(wanted.asked) == {None}:
                reason = f"columns of {len(first)}, of which two are read"
                tally.note(reason, str(path), len(first) - len(places), "left out")
            if header:
                continue
        if len(cells) != len(first):
            raise InputError(f"{path}, line {line}: {len(cells)} columns; wanted {len(first)} like the lines before")
        yield line, [None if place is None else cells[place] for place in places]


def read_tabs(path: Path, strict: bool) -> Iterator[tuple[int, list[str] | None]]:
    for number, line in enumerate(some_lines(path, strict), 1):
        if line is None:
            yield number, None
        else:
            yield number, line.split("\t") if line.strip() else []


def read_quoted(path: Path) -> Iterator[tuple[int, list[str] | None]]:
    """CSV as spreadsheets write it: cells with commas, quotes or line ends stand between quotes."""

    def lines() -> Iterator[str]:
        for number, line in enumerate(raw_lines(path), 1):
            try:
                yield line.decode() + "\n"
            except UnicodeDecodeError:
                raise not_utf8(path, number, line) from None

    csv.field_size_limit(LONGEST_LINE)
    left = lines()
    first = next(left, "")
    reader = csv.reader(chain([first], left), strict=True, delimiter=delimiter_of(first))
    number = 1
    try:
        for cells in reader:
            yield number, cells if any(cell.strip() for cell in cells) else []
            number = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {number}: not CSV: {error}") from None


def delimiter_of(first: str) -> str:
    """What stands between the cells of a CSV: a comma, or what spreadsheets write where the comma is in numbers."""
    return next((mark for mark in ",;\t" if len(next(csv.reader([first], delimiter=mark), ())) > 1), ",")


def read_objects(path: Path, wanted: Wanted) -> Iterator[Cells]:
    """JSON lines: the same fields of each object."""
    names: list[str | None] = []
    for number, line in enumerate(raw_lines(path), 1):
        if not line.strip():
            yield number, []
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number}: not a JSON object, as .jsonl wants one a line")
        names = names or fields_of(row, wanted, path)
        cells: list[str | None] = []
        for key, name in zip(wanted.keys, names, strict=True):
            value = None if name is None else row.get(name)
            if value is None and name in row:
                value = ""  # null is an empty cell
            if isinstance(value, int | float):
                value = json.dumps(value)
            if name is not None and not isinstance(value, str):
                found = "missing" if name not in row else json.dumps(value)[:40]
                raise InputError(f"{path}, line {number}: the field {name!r} (data.{key}) is {found}; wanted a string")
            if isinstance(value, str) and (half := HALF.search(value)):
                said = f"holds {half[0]}, half a character, which no text has"
                raise InputError(f"{path}, line {number}: the field {name!r} (data.{key}) {said}")
            cells.append(value)
        yield number, cells


def fields_of(row: dict[str, object], wanted: Wanted, path: Path) -> list[str | None]:
    found: list[str | None] = []
    for key, column, usual in zip(wanted.keys, wanted.asked, wanted.usual, strict=True):
        name = column if column is not None else usual if usual in row else None
        require(not isinstance(name, int), f"{path}: data.{key} = {name!r}: JSON lines have names, not numbers")
        missing = name not in row and (name is not None or usual not in wanted.optional)
        known = ", ".join(row)[:200]
        require(
            not missing, f"{path}: no field {name or usual!r}; its objects have: {known} (data.{key} names another)"
        )
        found.append(None if name is None else str(name))
    return found


def find_columns(first: Sequence[str], wanted: Wanted, path: Path) -> tuple[list[int | None], bool]:
    """Where the chosen columns are, and whether the first line names them."""
    names = [name.strip() for name in first]
    asked = list(wanted.asked)
    needed = [usual for usual in wanted.usual if usual not in wanted.optional]
    if asked == [None] * len(asked):
        if set(needed) <= set(names):
            asked = [usual if usual in names else None for usual in wanted.usual]
        elif len(first) == len(wanted.usual):
            asked = list(range(1, len(first) + 1))
        elif len(first) == len(needed) or "target" in needed:  # of pairs, the first two of any number
            between = "comma" if form_of(path) == "csv" else "tab"
            require(len(first) >= 2, f"{path}, line 1: 1 columns; wanted at least 2, with a {between} between them")
            asked = [needed.index(usual) + 1 if usual in needed else None for usual in wanted.usual]
        else:
            said = " and ".join(f"`{usual}`" for usual in needed)
            keys = " and ".join(key.removeprefix("data.") for key in wanted.keys if "second" not in key)
            raise InputError(
                f"{path}: {len(first)} columns, of which none is known to be the {needed[0]}; "
                f"name its columns {said} in its first line, or say data.{keys}"
            )
    for key, column, usual in zip(wanted.keys, asked, wanted.usual, strict=True):
        missing = column is None and usual not in wanted.optional
        require(not missing, f"{path}: data.{key} is not said; give it by name or number, as the others")
    places = [None if column is None else place_of(column, names, path) for column in asked]
    chosen = [place for place in places if place is not None]
    require(len(set(chosen)) == len(chosen), f"{path}: two of the chosen columns are the same one")
    return places, any(isinstance(column, str) for column in asked)


def place_of(column: Column, names: Sequence[str], path: Path) -> int:
    """A column by its name in the first line, or by its number from 1."""
    if isinstance(column, int):
        require(column <= len(names), f"{path}: no column {column}; its first line has {len(names)}")
        return column - 1
    if names.count(column) != 1:
        found = "no column" if column not in names else f"{names.count(column)} columns"
        raise InputError(f"{path}: {found} {column!r}; its first line has: {', '.join(names)[:200]}")
    return names.index(column)
