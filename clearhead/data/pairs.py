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
    """Pairs of texts, as ids. Those with more than `max_length` tokens on a side, `</s>` included, stay texts only:
    `examples` shows them, but no batch holds them."""

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
    ) -> None:
        self.texts = texts
        self.tokenizer = tokenizer
        self.files = files
        self.pad_id = special(tokenizer, PAD)
        sources = [source_ids(tokenizer, text.source) for text in texts]
        targets = [target_ids(tokenizer, text.target) for text in texts]
        lengths = [max(len(source), len(target) - 1) for source, target in zip(sources, targets, strict=True)]
        kept = [i for i, length in enumerate(lengths) if max_length is None or length <= max_length]
        numbers = range(1, len(texts) + 1) if lines is None else lines
        self.lines = [numbers[i] for i in kept]
        self.skipped = [*skipped, *too_long(kept, lengths, max_length, numbers, files)]
        self.sources = Ragged.of([sources[i] for i in kept])
        self.targets = Ragged.of([targets[i] for i in kept])

    def __len__(self) -> int:
        return len(self.lines)

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
