"""One fault: the class it belongs to, the case, the way to try it, and what went wrong, if anything did."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """One fault that was tried."""

    family: str  # a row of the table in docs/reliability.md
    case: str  # enough to try it again
    wrong: str = ""  # empty: survived as promised

    @property
    def survived(self) -> bool:
        return not self.wrong


@dataclass(frozen=True)
class Trial:
    """One fault that can be tried: those of which the outcome is known need not be."""

    family: str
    case: str
    attempt: Callable[[], str]  # what went wrong, if anything did

    def outcome(self) -> Outcome:
        return Outcome(self.family, self.case, self.attempt())


# A class of faults is a module beside this one with `trials(small)`: a sample for `make test`, or everything there is.
Trials = Callable[[bool], Iterator[Trial]]


def outcomes(trials: Iterator[Trial]) -> list[Outcome]:
    """All of them, tried."""
    return [trial.outcome() for trial in trials]
