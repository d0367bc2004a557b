"""Text in windows of equal length, and the language model's task: to guess the next token.

The documents lie one after the other in a stream of ids, which is cut into windows. Nothing is padded (but the very
last window), and as several documents may share a window, each position is given the number of its document: the
model then lets none look into its neighbour. For training, the cuts are shifted by a random amount in every epoch, so
that a token is seen once an epoch (but for a rest at either end), each time at another place of its window.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batch import IGNORE, Batch, Example, Ids, Kind, Skipped, generator
from clearhead.data.plan import plan_evenly
from clearhead.data.text import Text
from clearhead.errors import InputError
from clearhead.tokenizer.base import BOS, EOS, Tokenizer

SHIFT = 1  # what a random generator is for


class Stream:
    """The ids of all documents in one row, and windows onto it."""

    def __init__(self, documents: Sequence[Ids], text: Text, context: int, shifted: bool) -> None:
        self.ids: Ids = np.concatenate(documents)
        self.files, self.context, self.length = text.files, context, len(self.ids)
        self.numbers: Ids | None = None
        if text.apart:
            self.numbers = np.repeat(np.arange(len(documents), dtype=np.int32), [len(ids) for ids in documents])
        if self.length == 0:
            raise InputError(f"{text.files}: too little text")
        self.shifted = shifted and self.length >= 2 * context
        if self.shifted:
            self.windows = (self.length - (context - 1)) // context  # the largest shift leaves room for them all
        else:
            self.windows = -(-self.length // context)  # the last one may be filled in part

    def places(
        self, indices: Sequence[int], seed: int, epoch: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], Tensor | None]:
        """Where these windows lie in the stream (B, S), which of the places are real, and the document numbers, if a
        window holds more than one document."""
        shift = int(generator(seed, epoch, SHIFT).integers(self.context)) if self.shifted else 0
        places = shift + np.asarray(indices, np.int64)[:, None] * self.context + np.arange(self.context)
        real = places < self.length
        places = np.minimum(places, self.length - 1)
        if self.numbers is None:
            return places, real, None
        numbers = self.numbers[places]
        several = bool((numbers != numbers[:, :1]).any())
        return places, real, torch.from_numpy(numbers.astype(np.int64)) if several else None

    def plan(self, seed: int, epoch: int, max_tokens: int) -> list[list[int]]:
        if max_tokens < self.context:
            raise InputError(
                f"a window has data.context = {self.context} tokens, more than a batch may hold: "
                f"training.max_tokens = {max_tokens}"
            )
        return plan_evenly(self.windows, max_tokens // self.context, seed, epoch)

    def name(self, index: int) -> str:
        return f"{self.files}, window {index}"


def encode_documents(text: Text, tokenizer: Tokenizer) -> list[Ids]:
    """Ids of each document, between <s> and </s> if documents are kept apart, or between twice the one mark of a
    vocabulary like GPT-2's."""
    documents = [tokenizer.encode_ordinary(document) for document in text.documents]
    if text.apart:
        start, end = tokenizer.bos_id, tokenizer.eos_id
        if end is None:
            known = ", ".join(tokenizer.special) or "none"
            raise InputError(f"to keep documents apart, the tokenizer needs {BOS!r} and {EOS!r} (it has: {known})")
        documents = [[end if start is None else start, *ids, end] for ids in documents]
    return [np.array(ids, dtype=np.int32) for ids in documents]


class Windows:
    """What the datasets of windows have in common: an example is a window onto a stream of ids."""

    def __init__(self, documents: Sequence[Ids], text: Text, tokenizer: Tokenizer, context: int, shifted: bool) -> None:
        self.tokenizer = tokenizer
        self.apart = text.apart  # whether documents have their marks, and none sees another
        self.skipped: list[Skipped] = text.skipped
        self.stream = Stream(documents, text, context, shifted)

    def __len__(self) -> int:
        return self.stream.windows

    def plan(self, seed: int, epoch: int, max_tokens: int) -> list[list[int]]:
        """Here `max_tokens` counts all tokens of the windows, whether they are to be predicted or not."""
        return self.stream.plan(seed, epoch, max_tokens)

    def name(self, index: int) -> str:
        return self.stream.name(index)


class NextTokens(Windows):
    """For a language model: at each position, the token that follows in its document."""

    kind: Kind = "decoder"
    head: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)

    def __init__(self, text: Text, tokenizer: Tokenizer, context: int, shifted: bool) -> None:
        documents = encode_documents(text, tokenizer)
        super().__init__([ids[:-1] for ids in documents], text, tokenizer, context, shifted)
        self.labels: Ids = np.concatenate([ids[1:] for ids in documents])

    def collate(self, indices: Sequence[int], seed: int = 0, epoch: int = 0) -> Batch:
        places, real, documents = self.stream.places(indices, seed, epoch)
        labels = np.where(real, self.labels[places], IGNORE).astype(np.int64)
        # what is not real stands at the end of a window, where causality hides it
        inputs: dict[str, Tensor] = {"tokens": torch.from_numpy(self.stream.ids[places].astype(np.int64))}
        if documents is not None:
            inputs["documents"] = documents
        return Batch(inputs, torch.from_numpy(labels), int(real.sum()))

    def examples(self, limit: int | None = None) -> list[Example]:
        """The beginning of a window, and how it goes on: to the end of its document. Marks are no part of a text."""
        stream, marks = self.stream, set(self.tokenizer.special.values()) if self.apart else set()
        starts = range(0, stream.length, stream.context)[:limit]
        cut = max(1, stream.context // 4)
        decode = self.tokenizer.decode
        examples = []
        for start in starts:
            window = stream.ids[start : start + stream.context]
            if stream.numbers is not None:
                numbers = stream.numbers[start : start + stream.context]
                window = window[numbers == numbers[0]]
            ids = [token for token in window.tolist() if token not in marks]
            examples.append(Example(decode(ids[:cut]), decode(ids[cut:])))
        return examples
