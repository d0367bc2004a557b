"""A batch: what goes into a model and what should come out, as tensors; and how sequences of many lengths become one.

Text is turned into ids once (once an epoch, where merges are dropped at random), and the ids of all examples lie one
after the other in a single array (`Ragged`), in memory or in a file that is mapped into it (`store.py`). A batch is then
a few NumPy operations, whatever the number of tokens: no Python runs for each of them.
"""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.tokenizer.base import Tokenizer

IGNORE = -100  # the label of a position where nothing is predicted; what PyTorch's losses leave out, too
Ids = NDArray[np.integer[Any]]
Lengths = NDArray[np.int64]
Indices = Sequence[int] | NDArray[np.int64]
Kind = Literal["encoder-decoder", "decoder", "encoder"]


@dataclass(frozen=True)
class Batch:
    """`model.hidden(**inputs)` gives the states from which `labels` are predicted."""

    inputs: dict[str, Tensor]
    labels: Tensor  # (B, S), or (B,) where there is one for each sequence
    count: int  # labels that are not IGNORE

    def to(self, device: torch.device | str) -> "Batch":
        moved = {name: value.to(device, non_blocking=True) for name, value in self.inputs.items()}
        return Batch(moved, self.labels.to(device, non_blocking=True), self.count)


class Example(NamedTuple):
    """An example as people read it: what the model is given, and what it should answer."""

    source: str
    target: str


@dataclass(frozen=True)
class Skipped:
    """Lines that could not be used, so that a run can say so: how many, why, and where the first one is."""

    count: int
    reason: str
    first: str  # file and line
    what: str = "skipped"  # what became of them

    def __str__(self) -> str:
        return f"{self.what} {self.count:,}: {self.reason} (first: {self.first})"


class Tally:
    """Counts what is left out while reading, by reason, and keeps where each came up first."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], tuple[int, str]] = {}

    def note(self, reason: str, where: str, count: int = 1, what: str = "skipped") -> None:
        before, first = self.found.get((reason, what), (0, where))
        self.found[reason, what] = before + count, first

    def skipped(self) -> list[Skipped]:
        return [Skipped(count, reason, first, what) for (reason, what), (count, first) in self.found.items()]


class Dataset(Protocol):
    """What a training loop asks of data. Everything random is a function of (seed, epoch, index), so a run can start
    at any step, and every process can make its own part of a batch."""

    kind: Kind  # the model it is for
    head: dict[str, Any]  # the head that model needs; empty: its usual one
    tokenizer: Tokenizer
    skipped: list[Skipped]
    blocks: int  # into which an epoch is divided (`plan.py`); one, unless there are very many examples

    def __len__(self) -> int: ...

    def plan(self, seed: int, epoch: int, max_tokens: int, block: int = 0) -> list[list[int]]:
        """The batches of a block of an epoch, as indices of examples; each predicts at most `max_tokens` tokens."""
        ...

    def collate(self, indices: Sequence[int], seed: int = 0, epoch: int = 0) -> Batch:
        """These examples as tensors."""
        ...

    def examples(self, limit: int | None = None) -> list[Example]:
        """The first examples, or all, as text."""
        ...

    def name(self, index: int) -> str:
        """Where an example comes from, for messages."""
        ...


def generator(*words: int) -> np.random.Generator:
    """Random numbers that depend on these words and nothing else."""
    return np.random.default_rng(words)


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits for each number, always the same: the mixing step of SplitMix64 (Steele, Lea and Flood, 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def let_go(*arrays: NDArray[Any]) -> None:
    """Of arrays that are files, give back the memory of what was read: else an epoch would gather all of it."""
    for array in arrays:
        if isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


class Ragged:
    """Sequences of different lengths in one flat array; `ends` says where each ends."""

    def __init__(self, flat: NDArray[Any], ends: Lengths) -> None:
        self.flat, self.ends = flat, ends

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Ragged":
        ends = np.cumsum(np.fromiter(map(len, sequences), np.int64, len(sequences)))
        return cls(np.fromiter(chain.from_iterable(sequences), np.int32, int(ends[-1]) if len(ends) else 0), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def spans(self, indices: Indices) -> tuple[Lengths, Lengths]:
        """Where these sequences start, and how long they are."""
        indices = np.asarray(indices, np.int64)
        ends = self.ends[indices]
        starts = np.where(indices > 0, self.ends[indices - 1], 0)
        return starts, ends - starts

    @property
    def lengths(self) -> Lengths:
        """Of all of them."""
        return np.diff(self.ends, prepend=0)

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self.flat[self.ends[index - 1] if index else 0 : self.ends[index]]

    def padded(self, indices: Indices, fill: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """These sequences as rows of a matrix, filled up on the right, and where the real tokens are."""
        starts, lengths = self.spans(indices)
        columns = np.arange(lengths.max())
        real = columns < lengths[:, None]  # (B, S)
        rows = np.full(real.shape, fill, dtype=np.int64)
        rows[real] = self.flat[(starts[:, None] + columns)[real]]
        let_go(self.flat, self.ends)
        return rows, real
