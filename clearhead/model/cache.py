"""The KV cache: keys and values kept between decoding steps.

A decoder's token never sees a later one, so its keys and values never change: each step projects only the new token
and finds the others here. Room is allocated ahead and doubles when full. The decoder's self-attention grows by a token
a step; its cross-attention is projected once from the encoder's output and then only read. The cache is a plain object
passed into the model, and belongs to one batch of sequences.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.model.config import ModelConfig
from clearhead.model.positions import token_positions


class AttentionCache:
    """Keys and values of one attention, (B, G, length, d) each, in rooms of some capacity."""

    def __init__(self, capacity: int = 0) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.length = 0
        self.capacity = capacity

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values (B, G, S, d) of new tokens; returns all of them so far."""
        if k.requires_grad:
            raise InputError("the cache is for inference: decode inside torch.no_grad() or torch.inference_mode()")
        end = self.length + k.size(2)
        if self.keys is None or self.values is None:
            self.capacity = max(self.capacity, end)
            self.keys, self.values = self._room(k), self._room(v)
        elif end > self.capacity:
            self.capacity = max(2 * self.capacity, end)
            kept_keys, kept_values = self.all()
            self.keys, self.values = self._room(k), self._room(v)
            self.keys[:, :, : self.length] = kept_keys
            self.values[:, :, : self.length] = kept_values
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.all()

    def _room(self, like: Tensor) -> Tensor:
        return like.new_empty(like.size(0), like.size(1), self.capacity, like.size(3))

    def all(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)

    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.keys, self.values) if t is not None)


@dataclass(frozen=True)
class LayerCache:
    """What is kept of the two attentions of one decoder layer; nothing, unless a cache is used."""

    self_attention: AttentionCache | None = None
    cross_attention: AttentionCache | None = None


UNCACHED = LayerCache()


class KVCache:
    """All layers of one decoder. `length` counts slots; rows padded on the left have fewer real tokens in them."""

    def __init__(self, config: ModelConfig, batch: int, capacity: int = 64) -> None:
        self.batch = batch
        self.self_attention = [AttentionCache(capacity) for _ in range(config.decoder_layers)]
        self.cross_attention = [AttentionCache() for _ in range(config.decoder_layers)]
        self.layers = [LayerCache(*both) for both in zip(self.self_attention, self.cross_attention, strict=True)]
        self.real: Tensor | None = None  # (B, length), kept only once a padded token has been seen

    @property
    def length(self) -> int:
        """Slots filled, padding included."""
        return self.self_attention[0].length

    @property
    def lengths(self) -> Tensor:
        """Real tokens in each row, (B,)."""
        return torch.full((self.batch,), self.length) if self.real is None else self.real[:, : self.length].sum(-1)

    def admit(
        self, tokens: Tensor, real: Tensor | None, documents: Tensor | None
    ) -> tuple[Tensor, Tensor | None, bool]:
        """Called once a pass, before the layers: which new tokens (B, S) come, and which of them are real.

        Returns the position of every key, the new ones last (1 or B, T); which keys may be seen, as `may_attend`; and
        whether the new tokens also follow each other in time.
        """
        batch, count = tokens.shape
        if documents is not None:
            raise InputError("documents are for packed training batches; a cache holds one document a row")
        if self.batch != batch:
            raise InputError(f"the cache holds {self.batch} rows, but the tokens have {batch}")
        length = self.length
        if real is not None or self.real is not None:
            # up to the slots filled: a pass that was refused after this left a note of tokens that never came
            before = tokens.new_ones(batch, length, dtype=torch.bool) if self.real is None else self.real[:, :length]
            new = tokens.new_ones(batch, count, dtype=torch.bool) if real is None else real
            self.real = torch.cat((before, new), dim=1)
            return token_positions(tokens, self.real), self.real[:, None, None, :], True
        return torch.arange(length + count, device=tokens.device)[None], None, True

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: beams that survive, sentences that have finished and leave."""
        for attention in (*self.self_attention, *self.cross_attention):
            attention.reorder(rows)
        if self.real is not None:
            self.real = self.real.index_select(0, rows)
        self.batch = rows.numel()

    def bytes(self) -> int:
        """Memory held for keys and values, spare room included."""
        return sum(attention.bytes() for attention in (*self.self_attention, *self.cross_attention))
