"""What an experiment is: a claim, arms, a measure, and a rule for the verdict.

An arm is one way of doing the thing (with scaling, without). `measure` runs one arm with one seed and gives numbers;
verdicts, headline and figure see nothing but those numbers, so that anyone can recompute them from what is stored. What
people say often says several things at once ("cuts parameters and improves perplexity"), so a claim has parts, each a
statement that is true or false by itself, with a rule and a verdict of its own. The rule is written in words beside the
function that applies it, and the words are what the report prints.

Sizes, arms and rules are chosen with the help of pilot runs. So that a rule is never judged by the numbers that it was
made from, pilots have seeds of their own, which no report shows.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from clearhead.errors import InputError
from clearhead.lab.intervals import Interval, interval, share_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Sizes = Mapping[str, Any]  # steps, widths, lengths …; plain values, because they are stored with the results
Numbers = dict[str, float | list[float]]
Word = Literal["holds", "holds only if", "does not hold here", "cannot tell at this size"]

# Numbers whose names begin like this depend on the machine and its mood; all others repeat to the last digit.
MACHINE = ("time_", "memory_")

# Pilots count from 1. What is reported counts from 201: seeds from 101 on were looked at when verdicts by statement,
# and their rules, were written. What still stands in docs/ with such seeds is marked as measured before its rules.
PILOT_SEED, EARLIER_SEED, FIRST_SEED = 1, 101, 201


class Verdict(NamedTuple):
    """One of four words, and a sentence with the numbers that led to it: how large the effect is, and what it costs."""

    word: Word
    sentence: str


@dataclass(frozen=True)
class Cell:
    """What one arm measured with one seed."""

    arm: str
    seed: int
    numbers: Numbers


class Results:
    """All cells of one experiment at one size. `trials` says of numbers that are shares how many things each counts."""

    def __init__(self, sizes: Sizes, cells: Iterable[Cell], trials: Mapping[str, int] | None = None) -> None:
        self.sizes = sizes
        self.cells = sorted(cells, key=lambda cell: cell.seed)
        self.trials = trials or {}

    @property
    def seeds(self) -> int:
        return len({cell.seed for cell in self.cells})

    @property
    def earlier(self) -> bool:
        """Measured with seeds that were known when the present rules were written."""
        return self.cells[0].seed < FIRST_SEED

    @property
    def seed_range(self) -> str:
        return f"{self.cells[0].seed} to {self.cells[-1].seed}" if self.seeds > 1 else f"{self.cells[0].seed}"

    def each(self, arm: str, name: str) -> list[Any]:
        """One value (a number, or a list of them) for each seed."""
        found = [cell.numbers[name] for cell in self.cells if cell.arm == arm and name in cell.numbers]
        if not found:
            raise InputError(f"no result {name!r} of the arm {arm!r}; run the experiment first")
        return found

    def mean(self, arm: str, name: str) -> float:
        return self.interval(arm, name).mean

    def interval(self, arm: str, name: str) -> Interval:
        """Mean and 95% interval over the seeds; of a share, one that lies between 0 and 1."""
        return self.over_seeds(name, self.each(arm, name))

    def curve(self, arm: str, name: str) -> list[Interval]:
        """The same for each place of a list; as long as the shortest, where one ended early."""
        return [self.over_seeds(name, values) for values in zip(*self.each(arm, name), strict=False)]

    def over_seeds(self, name: str, values: Sequence[float]) -> Interval:
        return share_interval(values, self.trials[name]) if name in self.trials else interval(values)

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
class Part:
    """One statement of a claim, and how its verdict follows from the numbers: in words, and as code."""

    claim: str
    rule: str
    judge: Callable[[Results], Verdict]


@dataclass(frozen=True)
class Experiment:
    """One claim and how it is put to the test."""

    number: int  # the order in which they are listed
    name: str
    claim: str  # as people say it
    parts: tuple[Part, ...]  # what it says, one statement at a time
    arms: Mapping[str, str]  # each arm's name, and what it is
    measured: str  # what is measured, in a sentence
    measure: Callable[[str, int, Sizes], Numbers]  # arm, seed, sizes
    headline: Callable[[Results], str]  # what the figure shows, in a sentence
    figure: Callable[[Results], "Figure"]
    quick: Sizes
    full: Sizes
    columns: Mapping[str, str] = field(default_factory=dict)  # numbers shown in the report's table, and their headings
    shares: Mapping[str, Callable[[Sizes], int]] = field(default_factory=dict)  # numbers that are shares: of how many
    timed: bool = False  # measures time or memory: runs alone
    minutes: tuple[float, float] = (1.0, 10.0)  # quick and full on two cores: an estimate, for planning

    @property
    def why(self) -> str:
        """What the experiment's file says of the reasons, behind its first line."""
        text = inspect.getmodule(self.measure).__doc__ or ""
        return " ".join(text.split("\n\n", 1)[-1].split())

    def results(self, sizes: Sizes, cells: Iterable[Cell]) -> Results:
        return Results(sizes, cells, {name: of(sizes) for name, of in self.shares.items()})

    def verdicts(self, results: Results) -> list[Verdict]:
        """A verdict for each part of the claim."""
        return [part.judge(results) for part in self.parts]

    def sizes(self, quick: bool, seeds: int | None = None) -> dict[str, Any]:
        sizes = dict(self.quick if quick else self.full)
        if seeds is not None:
            sizes["seeds"] = seeds
        return sizes
