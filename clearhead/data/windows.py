"""Text in windows of equal length, and the language model's task: to guess the next token.

The documents lie one after the other in a stream of ids, which is cut into windows. Nothing is padded (but the very
last window), and as several documents may share a window, each position is given the number of its document: the
model then lets none look into its neighbour. For training, the cuts are shifted by a random amount in every epoch, so
that a token is seen once an epoch (but for a rest at either end), each time at another place of its window. Corpora
that are mixed by weight are streams of their own.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batch import IGNORE, Batch, Example, Ids, Indices, Kind, Skipped, generator, let_go
from clearhead.data.columns import Note, Origin, id_type, in_memory, origin_of
from clearhead.data.plan import count_blocks, members, plan_evenly
from clearhead.data.store import Chunk, Columns, Rising
from clearhead.data.text import Piece, marked
from clearhead.errors import InputError
from clearhead.tokenizer.base import BOS, EOS, Tokenizer

SHIFT = 1  # what a random generator is for


class TextEncoder:
    """Pieces of documents into columns: all ids in a row, and where in the stream each document ends. Of a document
    that is kept `apart` the ids stand between <s> and </s>, or between twice the one mark of a vocabulary like GPT-2's.
    If `next_tokens`, the last id of a document is no part of the stream: nothing follows that it could predict."""

    def __init__(self, tokenizer: Tokenizer, apart: bool, next_tokens: bool, min_length: int = 1) -> None:
        self.tokenizer, self.next_tokens, self.min_length = tokenizer, next_tokens, min_length
        self.marks: tuple[list[int], list[int]] = [], []
        if apart:
            start, end = tokenizer.bos_id, tokenizer.eos_id
            if end is None:
                known = ", ".join(tokenizer.special) or "none"
                raise InputError(f"to keep documents apart, the tokenizer needs {BOS!r} and {EOS!r} (it has: {known})")
            self.marks = [end if start is None else start], [end]

    def __call__(self, rows: Sequence[tuple[int, Piece]], train: bool, files: str) -> tuple[Chunk, Note]:
        note = Note()
        ids: list[Ids] = []
        ends: list[int] = []
        length = 0
        for corpus, piece in rows:
            found = self.tokenizer.encode_ordinary(piece.text)
            if train and piece.first and piece.last and len(found) < self.min_length:
                note.drop(f"shorter than data.min_length = {self.min_length} tokens", f"{files}: {piece.text[:40]}")
                continue
            if piece.first or piece.last:
                found = [*self.marks[0][: int(piece.first)], *found, *self.marks[1][: int(piece.last)]]
            ids.append(np.array(found, id_type(self.tokenizer)))
            length += len(found) - (piece.last and self.next_tokens)
            if piece.last:
                ends.append(length)
                note.keep(corpus)
        chunk: dict[str, Any] = {
            "ids": np.concatenate(ids) if ids else np.zeros(0, id_type(self.tokenizer)),
            "ends": Rising(np.array(ends, np.int64), length),
        }
        if not train:  # what is evaluated is text
            written = [piece.text.encode("utf-8", "surrogatepass") for _, piece in rows]
            sizes = np.cumsum([len(one) for one in written], dtype=np.int64)
            last = np.array([piece.last for _, piece in rows], bool)
            chunk["text"] = np.frombuffer(b"".join(written), np.uint8)
            chunk["text_ends"] = Rising(sizes[last], int(sizes[-1]) if len(sizes) else 0)
        return chunk, note


class Windows:
    """What the datasets of windows have in common: an example is a window onto a stream of ids."""

    kind: Kind
    head: dict[str, Any]
    next_tokens: bool

    def __init__(
        self, columns: Columns, origin: Origin, tokenizer: Tokenizer, apart: bool, context: int, shifted: bool
    ) -> None:
        """`apart`: whether documents have their marks, and none sees another. `shifted`: for training."""
        self.columns, self.origin, self.tokenizer, self.apart, self.context = columns, origin, tokenizer, apart, context
        self.skipped: list[Skipped] = origin.skipped
        ends = columns["ends"]
        # where in the row of all documents each stream ends, and how long it is
        last = np.cumsum(origin.sizes) if origin.weights is not None else np.array([len(ends)])
        last = last if apart else np.arange(1, len(ends) + 1)
        self.ends = ends[last - 1]
        self.lengths = np.diff(self.ends, prepend=0)
        if self.lengths.min() <= 0:
            raise InputError(f"{origin.files}: too little text")
        self.shifted = shifted & (self.lengths >= 2 * context)
        # the largest shift leaves room for all windows; without one, the last may be filled in part
        self.windows = np.where(
            self.shifted, (self.lengths - (context - 1)) // context, -(-self.lengths // context)
        ).astype(np.int64)
        self.blocks = count_blocks(len(self))

    @classmethod
    def of(
        cls, documents: Iterable[str], apart: bool, tokenizer: Tokenizer, context: int, shifted: bool,
        files: str = "text",
    ) -> Any:  # fmt: skip
        """A dataset of texts in memory."""
        rows = [(0, piece) for text in documents for piece in marked([text])]
        chunk, note = TextEncoder(tokenizer, apart, cls.next_tokens)(rows, False, files)
        return cls(in_memory(chunk), origin_of(files, (files,), note, ()), tokenizer, apart, context, shifted)

    def __len__(self) -> int:
        return int(self.windows.sum())

    def plan(self, seed: int, epoch: int, max_tokens: int, block: int = 0) -> list[list[int]]:
        """Here `max_tokens` counts all tokens of the windows, whether they are to be predicted or not."""
        if max_tokens < self.context:
            raise InputError(
                f"a window has data.context = {self.context} tokens, more than a batch may hold: "
                f"training.max_tokens = {max_tokens}"
            )
        chosen = members(self.windows.tolist(), self.origin.weights, seed, epoch, block)
        return plan_evenly(chosen, max_tokens // self.context, seed, epoch, block)

    def places(
        self, indices: Indices, seed: int, epoch: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], Tensor | None]:
        """Where these windows lie among the ids (B, S), which of the places are real, and the document numbers, if a
        window holds more than one document."""
        which = np.searchsorted(np.cumsum(self.windows), indices, side="right")  # the stream of each window
        window = np.asarray(indices, np.int64) - (np.cumsum(self.windows) - self.windows)[which]
        shifts = np.array(
            [
                int(generator(seed, epoch, SHIFT, *([number] if number else [])).integers(self.context)) * shifted
                for number, shifted in enumerate(self.shifted.tolist())
            ]
        )
        within = (shifts[which] + window * self.context)[:, None] + np.arange(self.context)
        lengths = self.lengths[which][:, None]
        real = within < lengths
        places = np.minimum(within, lengths - 1) + (self.ends - self.lengths)[which][:, None]
        numbers = which[:, None] + np.zeros_like(places)
        if self.apart:
            numbers = np.searchsorted(self.columns["ends"], places, side="right")
        several = self.apart and bool((numbers != numbers[:, :1]).any())
        documents = torch.from_numpy(numbers) if several else None
        # each document before this one has an id more than its part of the stream
        return (places + numbers if self.next_tokens else places), real, documents

    def ids(self) -> Ids:
        """The stream itself: what a model reads, in order."""
        return self.columns["ids"][self.stream_places()]

    def stream_places(self) -> NDArray[np.int64]:
        places = np.arange(int(self.columns["ends"][-1]))
        return places + self.numbers() if self.next_tokens else places

    def numbers(self) -> NDArray[np.int64]:
        """The document of each place of the stream."""
        ends = self.columns["ends"]
        return np.searchsorted(ends, np.arange(int(ends[-1])), side="right")

    def document_ids(self, index: int) -> Ids:
        """All ids of a document, its marks included."""
        start, end = (int(self.columns["ends"][one]) if one >= 0 else 0 for one in (index - 1, index))
        if self.next_tokens:  # each has an id more than its part of the stream
            start, end = start + index, end + index + 1
        return self.columns["ids"][start:end]

    def documents(self, limit: int | None = None) -> list[str]:
        """The texts of held-out documents."""
        ends = self.columns["text_ends"][:limit].tolist()
        text = self.columns["text"]
        return [text[start:end].tobytes().decode("utf-8", "surrogatepass") for start, end in pairwise([0, *ends])]

    def name(self, index: int) -> str:
        return f"{self.origin.files}, window {index}"


class NextTokens(Windows):
    """For a language model: at each position, the token that follows in its document."""

    kind: Kind = "decoder"
    head: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)
    next_tokens = True

    def collate(self, indices: Indices, seed: int = 0, epoch: int = 0) -> Batch:
        places, real, documents = self.places(indices, seed, epoch)
        ids = self.columns["ids"]
        labels = np.where(real, ids[places + 1].astype(np.int64), IGNORE)
        # what is not real stands at the end of a window, where causality hides it
        inputs: dict[str, Tensor] = {"tokens": torch.from_numpy(ids[places].astype(np.int64))}
        if documents is not None:
            inputs["documents"] = documents
        let_go(ids, self.columns["ends"])
        return Batch(inputs, torch.from_numpy(labels), int(real.sum()))

    def labels(self) -> Ids:
        """What is to be guessed at each place of the stream."""
        return self.columns["ids"][self.stream_places() + 1]

    def examples(self, limit: int | None = None) -> list[Example]:
        """The beginning of a window, and how it goes on: to the end of its document. Marks are no part of a text."""
        marks = set(self.tokenizer.special.values()) if self.apart else set()
        cut = max(1, self.context // 4)
        decode = self.tokenizer.decode
        examples = []
        for start in range(0, int(self.columns["ends"][-1]), self.context)[:limit]:
            places = np.arange(start, min(start + self.context, int(self.columns["ends"][-1])))
            numbers = np.searchsorted(self.columns["ends"], places, side="right")
            window = self.columns["ids"][(places + numbers)[numbers == numbers[0]]]
            ids = [token for token in window.tolist() if token not in marks]
            examples.append(Example(decode(ids[:cut]), decode(ids[cut:])))
        return examples
