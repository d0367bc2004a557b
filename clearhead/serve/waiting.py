"""The queue: requests wait in it, and one thread decodes what waits, model by model, as one batch.

One thread, because a second one would compete for the same cores; the event loop beside it reads, writes and notices
who has left. The queue is bounded: better to say at once that there is too much to do than to let everyone wait beyond
their deadline. Each model has a desk, at which texts wait and which does a turn of work when it is called.
"""

import math
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Busy(Exception):
    """Not now: too many wait (with the seconds after which to try again), or the server is about to stop."""

    def __init__(self, status: int, why: str, seconds: int) -> None:
        super().__init__(why)
        self.status, self.why, self.seconds = status, why, seconds


@dataclass(eq=False)
class Job:
    """One text of a request: what is wanted, and how its answer is told to the event loop."""

    wanted: Any
    tell: Callable[[Any], None]  # called in the event loop
    left: bool = False  # nobody waits for it any more
    since: float = field(default_factory=time.monotonic)


class Failed(Exception):
    """What a job is told if its computation broke; the terminal has the rest."""


Told = list[tuple[Job, Any]]


class Desk(Protocol):
    """Where the texts for one model wait. `turn` is called by the worker's thread only."""

    waiting: deque[Job]

    @property
    def under_way(self) -> Sequence[Job]:
        """Jobs that a turn has begun and not finished."""

    def take(self) -> list[Job]:
        """Remove from `waiting` what the next turn begins; called with the lock held."""

    def turn(self, begun: list[Job]) -> Told:
        """Work on these and on what is under way; what there is to tell."""

    def reset(self) -> None:
        """Forget what is under way."""


class Worker:
    """The thread, and what it shares with the event loop, which is guarded by one lock."""

    def __init__(self, desks: Sequence[Desk], most: int, post: Callable[[Callable[[], None]], None]) -> None:
        self.desks, self.most, self.post = desks, most, post
        self.changed = threading.Condition()
        self.draining = self.stopped = False
        self.thread = threading.Thread(target=self._run, name="decoding", daemon=True)

    def waiting(self) -> int:
        return sum(len(desk.waiting) for desk in self.desks)

    def submit(self, desk: Desk, jobs: Sequence[Job]) -> None:
        """Let the texts of one request wait; all of them or none."""
        with self.changed:
            if self.draining:
                raise Busy(503, "the server is about to stop", 5)
            waiting = self.waiting()
            if waiting and waiting + len(jobs) > self.most:  # an empty queue takes any request
                oldest = min(desk.waiting[0].since for desk in self.desks if desk.waiting)
                seconds = min(30, max(1, math.ceil(time.monotonic() - oldest)))
                raise Busy(429, f"{waiting} texts are waiting, and at most {self.most} may", seconds)
            desk.waiting.extend(jobs)
            self.changed.notify()

    def leave(self, jobs: Sequence[Job]) -> None:
        """The client has gone, or has what it wanted."""
        with self.changed:
            for job in jobs:
                job.left = True
            for desk in self.desks:  # those who left make room for others at once
                staying = [job for job in desk.waiting if not job.left]
                desk.waiting.clear()
                desk.waiting.extend(staying)
            self.changed.notify()

    def drain(self) -> None:
        """Finish what is under way and refuse the rest. Called by a signal's handler: it may not wait for the lock."""
        self.draining = True
        threading.Thread(target=self._refuse, daemon=True).start()

    def _refuse(self) -> None:
        with self.changed:
            refused = [job for desk in self.desks for job in desk.waiting if not job.left]
            for desk in self.desks:
                desk.waiting.clear()
        self._tell([(job, Busy(503, "the server is about to stop", 5)) for job in refused])

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify()
        if self.thread.is_alive():
            self.thread.join(30)

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self.stopped and not any(desk.waiting or desk.under_way for desk in self.desks):
                    self.changed.wait()
                if self.stopped:
                    return
            for desk in self.desks:  # in turns, so that nobody's long text keeps the others' models waiting
                with self.changed:
                    begun = desk.take()
                if begun or desk.under_way:
                    self._tell(self._turn(desk, begun))

    def _turn(self, desk: Desk, begun: list[Job]) -> Told:
        try:
            return desk.turn(begun)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            broken = dict.fromkeys([*begun, *desk.under_way])
            desk.reset()
            return [(job, Failed()) for job in broken]

    def _tell(self, told: Told) -> None:
        if not told:
            return

        def hand_over() -> None:
            for job, what in told:
                if not job.left:
                    job.tell(what)

        self.post(hand_over)
