"""Translations, vectors and labels: what waits when a turn comes is computed as one batch, if it was asked alike.

A beam search lives as a whole: nobody joins one that has begun, and the next one starts with all that have come
meanwhile. It ends early only if everybody who waited for it has left; the deadline sees to it that they do.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.decoding.abandon import Abandoned, while_wanted
from clearhead.serve.waiting import Job, Told


@dataclass(frozen=True)
class Item:
    """One text, as `compute` takes it, and how it is wanted: only what is wanted alike goes into one batch."""

    content: Any
    how: Hashable


class TogetherDesk:
    """Jobs whose `wanted` is an `Item`; `compute(contents, how)` gives a result for each."""

    def __init__(self, compute: Callable[[list[Any], Any], list[Any]], most: int) -> None:
        self.compute, self.most = compute, most
        self.waiting: deque[Job] = deque()
        self.under_way: Sequence[Job] = ()  # a turn finishes all that it begins

    def take(self) -> list[Job]:
        if not self.waiting:
            return []
        how, begun, others = self.waiting[0].wanted.how, list[Job](), list[Job]()
        while self.waiting and len(begun) < self.most:
            job = self.waiting.popleft()
            (begun if job.wanted.how == how else others).append(job)
        self.waiting.extendleft(reversed(others))
        return begun

    def turn(self, begun: list[Job]) -> Told:
        try:
            with while_wanted(lambda: not all(job.left for job in begun)):
                results = self.compute([job.wanted.content for job in begun], begun[0].wanted.how)
        except Abandoned:
            return []
        return list(zip(begun, results, strict=True))

    def reset(self) -> None:
        """Nothing is under way between turns."""
