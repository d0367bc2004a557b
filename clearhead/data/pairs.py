"""Sequence to sequence: a source to read and a target to write.

The decoder learns to predict each target token from those before it. So its input is the target shifted right by one
place, with `<s>` in front, and its labels are the target itself, with `</s>` behind (section 3.1, figure 1). The source
ends with `</s>` too: then even an empty one has a place to look at.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.data.batch import IGNORE, Batch, Example, Indices, Kind, Ragged, Skipped, let_go
from clearhead.data.columns import Note, Origin, id_type, in_memory, origin_of, rising, texts_of, written_texts
from clearhead.data.parallel import PairRow
from clearhead.data.plan import count_blocks, members, plan_by_length
from clearhead.data.store import Chunk, Columns, Rising
from clearhead.errors import InputError
from clearhead.tokenizer.base import ROLES, Tokenizer


def source_ids(tokenizer: Tokenizer, text: str, dropout: float = 0.0, chance: Random | None = None) -> list[int]:
    """A source as the encoder reads it, in training and ever after."""
    return [*tokenizer.encode_ordinary(text, dropout=dropout, generator=chance), special(tokenizer, "eos")]


def target_ids(tokenizer: Tokenizer, text: str, dropout: float = 0.0, chance: Random | None = None) -> list[int]:
    """A target with both its marks: without the last it is the decoder's input, without the first its labels."""
    return [special(tokenizer, "bos"), *source_ids(tokenizer, text, dropout, chance)]


def special(tokenizer: Tokenizer, role: str) -> int:
    """The id of a special token that this kind of data cannot do without."""
    found = tokenizer.marked(role)
    if found is None:
        known = ", ".join(tokenizer.special) or "none"
        raise InputError(f"the tokenizer lacks the special token {ROLES[role]!r} (it has: {known})")
    return found


class PairEncoder:
    """Pairs of texts into columns of ids, in whichever process it is called. Those with more than `max_length` tokens on
    a side, `</s>` included, stay texts only: `examples` shows them, but no batch holds them. Of training pairs, those
    that are too short or too unequal are left out as well."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer | None = None,
        max_length: int | None = None,
        min_length: int = 1,
        max_ratio: float | None = None,
    ) -> None:
        self.tokenizer, self.own = tokenizer, source_tokenizer or tokenizer
        self.max_length, self.min_length, self.max_ratio = max_length, min_length, max_ratio
        special(tokenizer, "pad")

    def __call__(self, rows: Sequence[tuple[int, PairRow]], train: bool, files: str) -> tuple[Chunk, Note]:
        """`rows` are the number of the corpus and the pair."""
        note = Note()
        sources: list[list[int]] = []
        targets: list[list[int]] = []
        kept: list[tuple[int, int]] = []  # line, and which of the texts it is
        for number, (corpus, row) in enumerate(rows):
            source, target = source_ids(self.own, row.source), target_ids(self.tokenizer, row.target)
            reason = self.unfit(len(source), len(target) - 1, train)
            note.saw(max(len(source), len(target) - 1))
            if reason:
                lengths = max(len(source), len(target) - 1)
                note.drop(reason, f"{files}, line {row.line}: {lengths} tokens")
                continue
            sources.append(source)
            targets.append(target)
            kept.append((row.line, number))
            note.keep(corpus)
        columns: dict[str, Any] = written_texts([text for _, row in rows for text in row[1:]])
        for name, found, tokenizer in (("source", sources, self.own), ("target", targets, self.tokenizer)):
            ragged = Ragged.of(found)
            columns |= {name: ragged.flat.astype(id_type(tokenizer)), f"{name}_ends": rising(ragged.ends)}
        columns["line"] = np.array([line for line, _ in kept], np.int64)
        columns["row"] = Rising(np.array([number for _, number in kept], np.int64), len(rows))
        return columns, note

    def unfit(self, source: int, target: int, train: bool) -> str:
        """Why a pair of so many tokens is not for batches; nothing if it is."""
        if self.max_length is not None and max(source, target) > self.max_length:
            return f"longer than data.max_length = {self.max_length} tokens"
        if train and min(source, target) < self.min_length:
            return f"shorter than data.min_length = {self.min_length} tokens"
        if train and self.max_ratio is not None and max(source, target) > self.max_ratio * min(source, target):
            return f"one side more than data.max_ratio = {self.max_ratio:g} times as long as the other"
        return ""


class Pairs:
    """Pairs of texts, as ids. With `dropout`, byte-pair encoding leaves out that share of its merges, and every epoch
    cuts the words in other ways (Provilkov et al., 2020); the ids of an epoch are then held in memory."""

    kind: Kind = "encoder-decoder"
    head: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)

    def __init__(
        self,
        columns: Columns,
        origin: Origin,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer | None = None,  # where the source has its own vocabulary
        max_length: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        self.columns, self.origin = columns, origin
        self.tokenizer, self.source_tokenizer = tokenizer, source_tokenizer
        self.max_length, self.dropout = max_length, dropout
        self.pad_id = special(tokenizer, "pad")
        self.source_pad_id = self.pad_id if source_tokenizer is None else special(source_tokenizer, "pad")
        self.skipped: list[Skipped] = origin.skipped
        self.sources = Ragged(columns["source"], columns["source_ends"])
        self.targets = Ragged(columns["target"], columns["target_ends"])
        self.blocks = count_blocks(len(self))
        self._drawn: tuple[tuple[int, int], Ragged, Ragged] | None = None

    @classmethod
    def of(cls, texts: Sequence[Example], tokenizer: Tokenizer, files: str) -> Any:
        """A dataset of texts that are made on the fly."""
        rows = [(0, PairRow(number, *text)) for number, text in enumerate(texts, 1)]
        chunk, note = PairEncoder(tokenizer)(rows, False, files)
        return cls(in_memory(chunk), origin_of(files, (files,), note, ()), tokenizer)

    def __len__(self) -> int:
        return len(self.sources)

    def encoded(self, seed: int, epoch: int) -> tuple[Ragged, Ragged]:
        """Sources and targets of an epoch: always the same without dropout, else drawn anew."""
        if not self.dropout:
            return self.sources, self.targets
        if self._drawn is None or self._drawn[0] != (seed, epoch):
            chance = Random(f"{seed} {epoch}")
            texts = self.examples()
            sources, targets = [], []
            for number, index in enumerate(self.columns["row"].tolist()):
                text = texts[index]
                source = source_ids(self.source_tokenizer or self.tokenizer, text.source, self.dropout, chance)
                target = target_ids(self.tokenizer, text.target, self.dropout, chance)
                fits = self.max_length is None or max(len(source), len(target) - 1) <= self.max_length
                sources.append(source if fits else self.sources[number].tolist())
                targets.append(target if fits else self.targets[number].tolist())
            self._drawn = ((seed, epoch), Ragged.of(sources), Ragged.of(targets))
        return self._drawn[1], self._drawn[2]

    def plan(self, seed: int, epoch: int, max_tokens: int, block: int = 0) -> list[list[int]]:
        sources, targets = self.encoded(seed, epoch)
        chosen = members(self.origin.sizes, self.origin.weights, seed, epoch, block)
        lengths = targets.spans(chosen)[1] - 1, sources.spans(chosen)[1]
        let_go(sources.ends, targets.ends)
        return plan_by_length(*lengths, seed, epoch, max_tokens, block, chosen)

    def collate(self, indices: Indices, seed: int = 0, epoch: int = 0) -> Batch:
        sources, targets = self.encoded(seed, epoch)
        source, source_real = sources.padded(indices, self.source_pad_id)
        target, target_real = targets.padded(indices, self.pad_id)
        labels = target.copy()
        labels[~target_real] = IGNORE
        # A target's </s> may stand in the decoder's input of a row that is shorter than its batch; causality hides it.
        inputs: dict[str, Tensor] = {
            "source": torch.from_numpy(source),
            "target": torch.from_numpy(target[:, :-1]).contiguous(),
        }
        if not source_real.all():
            inputs["source_real"] = torch.from_numpy(source_real)
        return Batch(inputs, torch.from_numpy(labels[:, 1:]).contiguous(), int(target_real[:, 1:].sum()))

    def examples(self, limit: int | None = None) -> list[Example]:
        texts = texts_of(self.columns, len(self.columns["text_ends"]) if limit is None else 2 * limit)
        return [Example(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)]

    def name(self, index: int) -> str:
        return self.origin.name(index, self.columns)
