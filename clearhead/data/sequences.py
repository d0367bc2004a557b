"""The first sanity checks of a sequence-to-sequence model: copy a list of numbers, reverse it, sort it.

Copying needs attention to the same position, reversing to the mirrored one, sorting to contents: a model that cannot
learn them within minutes has a mistake in its masks, positions or targets. And counting, for encoder-only models: of
every token of a list, say how often it occurs in it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.data.batch import IGNORE, Batch, Example, Indices, Kind, Ragged, Skipped, generator
from clearhead.data.pairs import special
from clearhead.data.plan import plan_by_length
from clearhead.errors import InputError
from clearhead.tokenizer.base import Tokenizer

List = tuple[int, ...]

RULES: dict[str, Callable[[List], Sequence[int]]] = {
    "copy": lambda numbers: numbers,
    "reverse": lambda numbers: numbers[::-1],
    "sort": sorted,
    "count": lambda numbers: [numbers.count(number) for number in numbers],
}


def write(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def make_lists(count: int, symbols: int, shortest: int, longest: int) -> list[List]:
    """Different lists of random numbers below `symbols`: the same ones whenever they are asked for.

    As none occurs twice, any way of dealing them out gives disjoint sets. Every length is as likely as the others
    until all lists of that length are used up.
    """
    random = generator(0)
    lists: dict[List, None] = {}  # a dictionary, because it keeps the order
    for _ in range(20):
        lengths = random.integers(shortest, longest + 1, size=count)
        flat = random.integers(0, symbols, size=int(lengths.sum())).tolist()
        ends = np.cumsum(lengths).tolist()
        for start, end in pairwise([0, *ends]):
            lists.setdefault(tuple(flat[start:end]))
        if len(lists) >= count:
            found = list(lists)
            return [found[i] for i in random.permutation(count)]  # the few short ones were all found early on
    raise InputError(
        f"found only {len(lists):,} different lists of {shortest} to {longest} numbers below {symbols}, and "
        f"{count:,} are wanted for training, validation and test; raise data.longest or data.symbols, or lower "
        "data.examples"
    )


def make_examples(task: str, lists: Sequence[List]) -> list[Example]:
    rule = RULES[task]
    return [Example(write(numbers), write(rule(numbers))) for numbers in lists]


class Counting:
    """For each token of a list, how often it occurs in it: one class for each count from 0 up to the longest list."""

    kind: Kind = "encoder"
    blocks = 1

    def __init__(self, texts: Sequence[Example], tokenizer: Tokenizer, longest: int) -> None:
        self.texts = texts
        self.tokenizer = tokenizer
        self.head: dict[str, Any] = {"kind": "tokens", "classes": longest + 1}
        self.skipped: list[Skipped] = []
        self.pad_id = special(tokenizer, "pad")
        self.tokens = Ragged.of([tokenizer.encode_ordinary(text.source) for text in texts])
        self.counts = Ragged.of([[int(word) for word in text.target.split()] for text in texts])

    def __len__(self) -> int:
        return len(self.texts)

    def plan(self, seed: int, epoch: int, max_tokens: int, block: int = 0) -> list[list[int]]:
        return plan_by_length(self.tokens.lengths, self.tokens.lengths, seed, epoch, max_tokens)

    def collate(self, indices: Indices, seed: int = 0, epoch: int = 0) -> Batch:
        tokens, real = self.tokens.padded(indices, self.pad_id)
        labels, _ = self.counts.padded(indices, IGNORE)
        inputs: dict[str, Tensor] = {"tokens": torch.from_numpy(tokens)}
        if not real.all():
            inputs["real"] = torch.from_numpy(real)
        return Batch(inputs, torch.from_numpy(labels), int(real.sum()))

    def examples(self, limit: int | None = None) -> list[Example]:
        return list(self.texts[:limit])

    def name(self, index: int) -> str:
        return f"the list {self.texts[index].source}"
