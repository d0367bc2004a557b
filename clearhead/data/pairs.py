"""Sequence to sequence: a source to read and a target to write.

The decoder learns to predict each target token from those before it. So its input is the target shifted right by one
place, with `<s>` in front, and its labels are the target itself, with `</s>` behind (section 3.1, figure 1). The source
ends with `</s>` too: then even an empty one has a place to look at.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor

from clearhead.data.batch import IGNORE, Batch, Example, Kind, Ragged, Skipped
from clearhead.data.plan import plan_by_length
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


class Pairs:
    """Pairs of texts, as ids. Those with more than `max_length` tokens on a side, `</s>` included, stay texts only:
    `examples` shows them, but no batch holds them. With `dropout`, byte-pair encoding leaves out that share of its
    merges, and every epoch cuts the words in other ways (Provilkov et al., 2020)."""

    kind: Kind = "encoder-decoder"
    head: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)

    def __init__(
        self,
        texts: Sequence[Example],
        tokenizer: Tokenizer,
        max_length: int | None = None,
        lines: Sequence[int] | None = None,  # which line (from 1) of `files` each pair is
        files: str = "example",
        skipped: Sequence[Skipped] = (),
        dropout: float = 0.0,
        source_tokenizer: Tokenizer | None = None,  # where the source has its own vocabulary
    ) -> None:
        self.texts = texts
        self.tokenizer, self.source_tokenizer = tokenizer, source_tokenizer
        self.max_length = max_length
        self.dropout = dropout
        self.files = files
        self.pad_id = special(tokenizer, "pad")
        self.source_pad_id = self.pad_id if source_tokenizer is None else special(source_tokenizer, "pad")
        sources = [source_ids(source_tokenizer or tokenizer, text.source) for text in texts]
        targets = [target_ids(tokenizer, text.target) for text in texts]
        lengths = [max(len(source), len(target) - 1) for source, target in zip(sources, targets, strict=True)]
        kept = [i for i, length in enumerate(lengths) if max_length is None or length <= max_length]
        numbers = range(1, len(texts) + 1) if lines is None else lines
        self.kept = kept
        self.lines = [numbers[i] for i in kept]
        self.skipped = [*skipped, *too_long(kept, lengths, max_length, numbers, files)]
        self.sources = Ragged.of([sources[i] for i in kept])
        self.targets = Ragged.of([targets[i] for i in kept])
        self._drawn: tuple[tuple[int, int], Ragged, Ragged] | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def encoded(self, seed: int, epoch: int) -> tuple[Ragged, Ragged]:
        """Sources and targets of an epoch: always the same without dropout, else drawn anew."""
        if not self.dropout:
            return self.sources, self.targets
        if self._drawn is None or self._drawn[0] != (seed, epoch):
            chance = Random(f"{seed} {epoch}")
            sources, targets = [], []
            for number, index in enumerate(self.kept):
                text = self.texts[index]
                source = source_ids(self.source_tokenizer or self.tokenizer, text.source, self.dropout, chance)
                target = target_ids(self.tokenizer, text.target, self.dropout, chance)
                fits = self.max_length is None or max(len(source), len(target) - 1) <= self.max_length
                sources.append(source if fits else self.sources[number].tolist())
                targets.append(target if fits else self.targets[number].tolist())
            self._drawn = ((seed, epoch), Ragged.of(sources), Ragged.of(targets))
        return self._drawn[1], self._drawn[2]

    def plan(self, seed: int, epoch: int, max_tokens: int) -> list[list[int]]:
        sources, targets = self.encoded(seed, epoch)
        return plan_by_length(targets.lengths - 1, sources.lengths, seed, epoch, max_tokens)

    def collate(self, indices: Sequence[int], seed: int = 0, epoch: int = 0) -> Batch:
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
        return list(self.texts[:limit])

    def name(self, index: int) -> str:
        return f"{self.files}, line {self.lines[index]}"


def too_long(
    kept: Sequence[int], lengths: Sequence[int], max_length: int | None, numbers: Sequence[int], files: str
) -> list[Skipped]:
    """A word about the pairs that were not kept; if none was kept there is nothing to train on."""
    left_out = sorted(set(range(len(lengths))).difference(kept))
    if not kept:
        shortest = f"; the shortest has {min(lengths)} tokens" if lengths else ""
        raise InputError(f"{files}: no pair has at most data.max_length = {max_length} tokens{shortest}")
    if not left_out:
        return []
    first = left_out[0]
    reason = f"longer than data.max_length = {max_length} tokens"
    return [Skipped(len(left_out), reason, f"{files}, line {numbers[first]}: {lengths[first]} tokens")]
