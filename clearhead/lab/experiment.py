"""What an experiment is: a claim, arms, a measure, and a rule for the verdict.

An arm is one way of doing the thing (with scaling, without). `measure` runs one arm with one seed and gives numbers;
`verdict` and `figure` see nothing but those numbers, so that anyone can recompute them from what is stored. The rule is
written in words beside the function that applies it, and the words are what the report prints.

Sizes, arms and rules are chosen with the help of pilot runs. So that a rule is never judged by the numbers that it was
made from, pilots have seeds of their own, which no report shows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from clearhead.errors import InputError
from clearhead.lab.intervals import Interval, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Sizes = Mapping[str, Any]  # steps, widths, lengths …; plain values, because they are stored with the results
Numbers = dict[str, float | list[float]]
Word = Literal["holds", "holds only if", "does not hold here", "cannot tell at this size"]

# Numbers whose names begin like this depend on the machine and its mood; all others repeat to the last digit.
MACHINE = ("time_", "memory_")

PILOT_SEED, FIRST_SEED = 1, 101  # pilots count from 1; what is reported counts from 101


class Verdict(NamedTuple):
    """One of four words, and a sentence with the numbers that led to it."""

    word: Word
    sentence: str


@dataclass(frozen=True)
class Cell:
    """What one arm measured with one seed."""

    arm: str
    seed: int
    numbers: Numbers


class Results:
    """All cells of one experiment at one size."""

    def __init__(self, sizes: Sizes, cells: Iterable[Cell]) -> None:
        self.sizes = sizes
        self.cells = sorted(cells, key=lambda cell: cell.seed)

    @property
    def seeds(self) -> int:
        return len({cell.seed for cell in self.cells})

    def each(self, arm: str, name: str) -> list[Any]:
        """One value (a number, or a list of them) for each seed."""
        found = [cell.numbers[name] for cell in self.cells if cell.arm == arm and name in cell.numbers]
        if not found:
            raise InputError(f"no result {name!r} of the arm {arm!r}; run the experiment first")
        return found

    def mean(self, arm: str, name: str) -> float:
        return self.interval(arm, name).mean

    def interval(self, arm: str, name: str) -> Interval:
        """Mean and 95% interval over the seeds."""
        return interval(self.each(arm, name))

    def curve(self, arm: str, name: str) -> list[Interval]:
        """The same for each place of a list; as long as the shortest, where one ended early."""
        return [interval(values) for values in zip(*self.each(arm, name), strict=False)]

    def intervals(self, arms: Iterable[str], name: str) -> dict[str, Interval]:
        """`interval` of each arm."""
        return {arm: self.interval(arm, name) for arm in arms}

    def curves(self, arms: Iterable[str], name: str) -> dict[str, list[Interval]]:
        """`curve` of each arm."""
        return {arm: self.curve(arm, name) for arm in arms}

    def difference(self, arm: str, other: str, name: str) -> Interval:
        """Arm minus other, seed by seed: what the seed does to both of them cancels out."""
        pairs = zip(self.each(arm, name), self.each(other, name), strict=True)
        return interval([one - two for one, two in pairs])

    def difference_at(self, arm: str, other: str, name: str, place: int) -> Interval:
        """The same at one place of a list."""
        pairs = zip(self.each(arm, name), self.each(other, name), strict=True)
        return interval([one[place] - two[place] for one, two in pairs])


@dataclass(frozen=True)
class Experiment:
    """One claim and how it is put to the test."""

    number: int  # the order in which they are listed
    name: str
    claim: str
    arms: Mapping[str, str]  # each arm's name, and what it is
    measured: str  # what is measured, in a sentence
    rule: str  # how the verdict follows from the numbers, in words
    measure: Callable[[str, int, Sizes], Numbers]  # arm, seed, sizes
    verdict: Callable[[Results], Verdict]
    figure: Callable[[Results], "Figure"]
    quick: Sizes
    full: Sizes
    columns: Mapping[str, str] = field(default_factory=dict)  # numbers shown in the report's table, and their headings
    timed: bool = False  # measures time or memory: runs alone

    def sizes(self, quick: bool, seeds: int | None = None) -> dict[str, Any]:
        sizes = dict(self.quick if quick else self.full)
        if seeds is not None:
            sizes["seeds"] = seeds
        return sizes
