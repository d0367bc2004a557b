"""A batch: what goes into a model and what should come out, as tensors; and how sequences of many lengths become one.

Text is turned into ids once (once an epoch, where merges are dropped at random), and the ids of all examples lie one
after the other in a single array (`Ragged`). A batch is then a few NumPy operations, whatever the number of tokens: no
Python runs for each of them.
"""

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
Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]
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


class Dataset(Protocol):
    """What a training loop asks of data. Everything random is a function of (seed, epoch, index), so a run can start
    at any step, and every process can make its own part of a batch."""

    kind: Kind  # the model it is for
    head: dict[str, Any]  # the head that model needs; empty: its usual one
    tokenizer: Tokenizer
    skipped: list[Skipped]

    def __len__(self) -> int: ...

    def plan(self, seed: int, epoch: int, max_tokens: int) -> list[list[int]]:
        """The batches of an epoch, as indices of examples; each predicts at most `max_tokens` tokens."""
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


class Ragged:
    """Sequences of different lengths in one flat array."""

    def __init__(self, flat: Ids, lengths: Lengths) -> None:
        self.flat = flat
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Ragged":
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        return cls(np.fromiter(chain.from_iterable(sequences), np.int32, int(lengths.sum())), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Ids:
        return self.flat[self.starts[index] : self.starts[index] + self.lengths[index]]

    def padded(self, indices: Sequence[int], fill: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """These sequences as rows of a matrix, filled up on the right, and where the real tokens are."""
        lengths, starts = self.lengths[indices], self.starts[indices]
        columns = np.arange(lengths.max())
        real = columns < lengths[:, None]  # (B, S)
        rows = np.full(real.shape, fill, dtype=np.int64)
        rows[real] = self.flat[(starts[:, None] + columns)[real]]
        return rows, real
