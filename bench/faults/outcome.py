"""What became of one fault: the class it belongs to, the case, and what went wrong, if anything did."""

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


# A class of faults is a module beside this one with `run(small)`: a sample for `make test`, or everything there is.
Run = Callable[[bool], Iterator[Outcome]]
