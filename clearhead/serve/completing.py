"""Continuations: texts join the batch under way between two steps, and leave it as soon as they end, meet a stop
string, or nobody waits for them any more."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.decoding.load import LoadedModel
from clearhead.decoding.rolling import RollingBatch, Row
from clearhead.serve.growing import GrowingText, Piece, Told
from clearhead.serve.waiting import Job
from clearhead.serve.waiting import Told as ToldJobs

MOST_READ = 4096  # tokens of prompts in one turn, unless one alone has more: all others wait while they are read


@dataclass(eq=False)
class Continuing:
    """One continuation: its row, its text so far, and whether each piece is told as it comes."""

    row: Row
    text: GrowingText
    stream: bool

    def __post_init__(self) -> None:
        self.pieces: list[Piece] = []

    def whole(self) -> Piece:
        tokens: list[Told] = [token for piece in self.pieces for token in piece.tokens]
        return Piece("".join(piece.text for piece in self.pieces), tokens, self.pieces[-1].finish)


class CompletingDesk:
    """Jobs whose `wanted` is a `Continuing`; at most so many are under way at a time."""

    def __init__(self, loaded: LoadedModel, most: int) -> None:
        self.loaded, self.most = loaded, most
        self.waiting: deque[Job] = deque()
        self.jobs: dict[Row, Job] = {}
        self.batch = RollingBatch(loaded)

    @property
    def under_way(self) -> Sequence[Job]:
        return list(self.jobs.values())

    def take(self) -> list[Job]:
        room, begun, read = self.most - len(self.jobs), list[Job](), 0
        while self.waiting and len(begun) < room:
            read += len(self.waiting[0].wanted.row.prompt)
            if begun and read > MOST_READ:
                break
            begun.append(self.waiting.popleft())
        return begun

    def turn(self, begun: list[Job]) -> ToldJobs:
        leaving = [row for row in self.batch.rows if row not in self.jobs or self.jobs[row].left]
        for row in leaving:
            self.jobs.pop(row, None)
        self.jobs |= {job.wanted.row: job for job in begun}
        told: ToldJobs = []
        for one in self.batch.step([job.wanted.row for job in begun], leaving):
            job = self.jobs[one.row]
            piece = job.wanted.text.push(one)
            if job.wanted.stream and (piece.text or piece.tokens or piece.finish):
                told.append((job, piece))
            elif not job.wanted.stream:
                job.wanted.pieces.append(piece)
                if piece.finish:
                    told.append((job, job.wanted.whole()))
            if piece.finish:
                del self.jobs[one.row]  # if it met a stop string, its row leaves with the next turn
        if not self.jobs:
            self.reset()
        return told

    def reset(self) -> None:
        self.jobs, self.batch = {}, RollingBatch(self.loaded)
