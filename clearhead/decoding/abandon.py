"""A search that nobody waits for any more ends between two steps: `with while_wanted(lambda: …): model.translate(…)`.

Searches ask at each step. What they are asked by belongs to the thread, as a trace does, so that no function on the way
has to hand it on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_wanted: ContextVar[Callable[[], bool]] = ContextVar("wanted")


class Abandoned(Exception):
    """Nobody wants the result."""


@contextmanager
def while_wanted(wanted: Callable[[], bool]) -> Iterator[None]:
    """Inside, a search raises `Abandoned` as soon as `wanted()` is False."""
    before = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(before)


def check_wanted() -> None:
    wanted = _wanted.get(None)
    if wanted is not None and not wanted():
        raise Abandoned
