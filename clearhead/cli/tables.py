"""How a table of costs looks in the terminal: rows by group and piece, numbers with three digits and a unit."""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from clearhead.cost.parts import Part


class Summable(Protocol):
    def __add__(self, other: Any) -> Any: ...


Sum = TypeVar("Sum", bound=Summable)


def screen() -> Console:
    """Where the tables go. In a pipe there is no width to fit, so they get the room they need."""
    return Console(width=None if sys.stdout.isatty() else 110, highlight=False)


def rows(values: "Mapping[Part, Sum]") -> list[tuple[str, str, Sum]]:
    """(group, piece, sum) in reading order, the stacks added up; each group first as a whole, with piece ""."""
    from clearhead.cost.parts import GROUPS, PIECES

    result = []
    for group in GROUPS:
        pieces = []
        for piece in PIECES:
            found = [value for part, value in values.items() if (part.group, part.name) == (group, piece)]
            if found:
                pieces.append((group, piece, add(found)))
        if pieces:
            result.append((group, "", add(value for _, _, value in pieces)))
        if len(pieces) > 1:
            result.extend(pieces)
    return result


def add(values: Iterable[Sum]) -> Sum:
    first, *others = values
    for value in others:
        first = first + value
    return first


def plain_table(*columns: str, numbers: bool = True) -> Table:
    """A table without lines, made to fit 80 columns; the first column has names, the others perhaps numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if numbers and place else "left", no_wrap=True)
    return table


def amount(number: float, unit: str = "") -> str:
    """63,082,496 as 63.1 M; nothing as a dash."""
    if number == 0:
        return "–"
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * scale:
            return f"{three_digits(number / scale)} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def milliseconds(seconds: float) -> str:
    return three_digits(1e3 * seconds)


def three_digits(number: float) -> str:
    places = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:,.{places}f}"


def percent(part: float, whole: float) -> str:
    """The share of a whole; nothing, and the whole itself, need no number."""
    return f"{100 * part / whole:.1f}%" if 0 < part != whole else ""
