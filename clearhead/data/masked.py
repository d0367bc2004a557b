"""Masked tokens: an encoder learns a language by guessing the words that were taken away (Devlin et al., 2019, 3.1).

15% of the tokens are to be guessed. Of these, 80% are replaced by `<mask>`, 10% by a random token and 10% not at all,
so that the model must have an opinion on every token and not only where it sees a mask.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batch import IGNORE, Batch, Example, Indices, Kind, generator, let_go, mixed
from clearhead.data.columns import Origin
from clearhead.data.store import Columns
from clearhead.data.windows import Windows
from clearhead.errors import InputError
from clearhead.tokenizer.base import MASK, Tokenizer

GUESSED, MASKED, SWAPPED = 0.15, 0.8, 0.1  # the share to be guessed; and what becomes of those
CORRUPTION = 2  # what a random generator is for


def chances(
    count: int, indices: NDArray[np.int64], context: int, random: np.random.Generator
) -> NDArray[np.float64]:  # (count, B, S)
    """`count` random numbers from 0 up to 1 for every position of these windows, the same whatever windows are asked
    for beside them.

    They are a hash of the position and a random key: a generator for each window would take longer than all the rest of
    a batch.
    """
    number = (indices[:, None] * context + np.arange(context)).astype(np.uint64)  # of the position in the stream
    keys = random.integers(0, 1 << 64, size=(count, 1, 1), dtype=np.uint64)
    return (mixed(keys + number * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)) * 2.0**-53


class MaskedTokens(Windows):
    """Windows onto a text with some of the tokens to be guessed; which ones is a function of (seed, epoch, window):
    in each epoch others, in validation always the same."""

    kind: Kind = "encoder"
    head: dict[str, Any] = {"kind": "masked"}  # noqa: RUF012 (nobody writes to it)

    next_tokens = False

    def __init__(
        self, columns: Columns, origin: Origin, tokenizer: Tokenizer, apart: bool, context: int, shifted: bool
    ) -> None:
        if tokenizer.mask_id is None:
            raise InputError(f"task = 'masked' needs a tokenizer with the special token {MASK!r}")
        super().__init__(columns, origin, tokenizer, apart, context, shifted)
        self.mask: int = tokenizer.mask_id
        self.reserved = np.array(list(tokenizer.special.values()))
        self.ordinary = np.setdiff1d(np.arange(tokenizer.size), [*self.reserved, *tokenizer.unused()])

    def collate(self, indices: Indices, seed: int = 0, epoch: int = 0) -> Batch:
        places, real, documents = self.places(indices, seed, epoch)
        tokens = self.columns["ids"][places].astype(np.int64)
        let_go(self.columns["ids"], self.columns["ends"])
        order, fate, other = chances(3, np.asarray(indices), self.context, generator(seed, epoch, CORRUPTION))
        candidates = real & ~np.isin(tokens, self.reserved)
        order[~candidates] = 1  # behind all others
        wanted = np.maximum(1, np.rint(GUESSED * candidates.sum(1))).astype(int)  # of each row
        guessed = candidates & (order.argsort(1).argsort(1) < wanted[:, None])
        labels = np.where(guessed, tokens, IGNORE)
        swapped = guessed & (fate >= MASKED) & (fate < MASKED + SWAPPED)
        tokens[guessed & (fate < MASKED)] = self.mask
        tokens[swapped] = self.ordinary[(other[swapped] * len(self.ordinary)).astype(int)]
        inputs: dict[str, Tensor] = {"tokens": torch.from_numpy(tokens)}
        if not real.all():
            inputs["real"] = torch.from_numpy(real)
        if documents is not None:
            inputs["documents"] = documents
        return Batch(inputs, torch.from_numpy(labels), int(guessed.sum()))

    def examples(self, limit: int | None = None) -> list[Example]:
        """A window with its masks, and as it was."""
        examples = []
        for index in range(len(self))[:limit]:
            batch = self.collate([index])
            real = batch.inputs.get("real", torch.ones_like(batch.labels, dtype=torch.bool))
            tokens, labels = batch.inputs["tokens"][real], batch.labels[real]
            whole = torch.where(labels == IGNORE, tokens, labels)
            examples.append(Example(self.tokenizer.decode(tokens.tolist()), self.tokenizer.decode(whole.tolist())))
        return examples
