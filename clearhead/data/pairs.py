"""Sequence to sequence: a source to read and a target to write.

The decoder learns to predict each target token from those before it. So its input is the target shifted right by one
place, with `<s>` in front, and its labels are the target itself, with `</s>` behind (section 3.1, figure 1). The source
ends with `</s>` too: then even an empty one has a place to look at.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.data.batch import IGNORE, Batch, Example, Kind, Ragged, Skipped
from clearhead.data.plan import plan_by_length
from clearhead.errors import InputError
from clearhead.tokenizer.base import BOS, EOS, PAD, Tokenizer


def source_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """A source as the encoder reads it, in training and ever after."""
    return [*tokenizer.encode_ordinary(text), special(tokenizer, EOS)]


def target_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """A target with both its marks: without the last it is the decoder's input, without the first its labels."""
    return [special(tokenizer, BOS), *tokenizer.encode_ordinary(text), special(tokenizer, EOS)]


def special(tokenizer: Tokenizer, name: str) -> int:
    """The id of a special token that this kind of data cannot do without."""
    if name not in tokenizer.special:
        known = ", ".join(tokenizer.special) or "none"
        raise InputError(f"the tokenizer lacks the special token {name!r} (it has: {known})")
    return tokenizer.special[name]


class Pairs:
    """Pairs of texts, as ids. `lines` says which line (from 1) of `files` each of them is."""

    kind: Kind = "encoder-decoder"
    head: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)

    def __init__(
        self,
        texts: Sequence[Example],
        tokenizer: Tokenizer,
        lines: Sequence[int] | None = None,
        files: str = "example",
        skipped: Sequence[Skipped] = (),
    ) -> None:
        self.texts = texts
        self.tokenizer = tokenizer
        self.lines = range(1, len(texts) + 1) if lines is None else lines
        self.files = files
        self.skipped = list(skipped)
        self.pad_id = special(tokenizer, PAD)
        self.sources = Ragged.of(source_ids(tokenizer, text.source) for text in texts)
        self.targets = Ragged.of(target_ids(tokenizer, text.target) for text in texts)

    def __len__(self) -> int:
        return len(self.texts)

    def plan(self, seed: int, epoch: int, max_tokens: int) -> list[list[int]]:
        return plan_by_length(self.targets.lengths - 1, self.sources.lengths, seed, epoch, max_tokens)

    def collate(self, indices: Sequence[int], seed: int = 0, epoch: int = 0) -> Batch:
        source, source_real = self.sources.padded(indices, self.pad_id)
        target, target_real = self.targets.padded(indices, self.pad_id)
        labels = target.copy()
        labels[~target_real] = IGNORE
        # A target's </s> may stand in the decoder's input of a row that is shorter than its batch; causality hides it.
        inputs: dict[str, Tensor] = {
            "source": torch.from_numpy(source),
            "target": torch.from_numpy(target[:, :-1]).contiguous(),
        }
        if not source_real.all():
            inputs["source_padding"] = torch.from_numpy(source_real)
        return Batch(inputs, torch.from_numpy(labels[:, 1:]).contiguous(), int(target_real[:, 1:].sum()))

    def examples(self, limit: int | None = None) -> list[Example]:
        return list(self.texts[:limit])

    def name(self, index: int) -> str:
        return f"{self.files}, line {self.lines[index]}"
