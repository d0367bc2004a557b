"""The KV cache: keys and values kept between decoding steps.

A decoder's token never sees a later one, so its keys and values never change: each step projects only the new token
and finds the others here. Room is allocated ahead and doubles when full. The decoder's self-attention grows by a token
a step; its cross-attention is projected once from the encoder's output and then only read. The cache is a plain object
passed into the model, and belongs to one batch of sequences.
"""

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.model.config import ModelConfig


class LayerCache:
    """Keys and values of one attention, (B, G, length, d) each, in rooms of some capacity."""

    def __init__(self, capacity: int) -> None:
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


class KVCache:
    """All layers of one decoder. `length` counts slots; rows padded on the left have fewer real tokens in them."""

    def __init__(self, config: ModelConfig, batch: int, capacity: int = 64) -> None:
        self.batch = batch
        self.self_attention = [LayerCache(capacity) for _ in range(config.decoder_layers)]
        crossing = config.decoder_layers if config.kind == "encoder-decoder" else 0
        self.cross_attention = [LayerCache(0) for _ in range(crossing)]
        self.real: Tensor | None = None  # (B, length), kept only once a padded token has been seen

    @property
    def length(self) -> int:
        """Slots filled, padding included."""
        return self.self_attention[0].length

    @property
    def lengths(self) -> Tensor:
        """Real tokens in each row, (B,)."""
        return torch.full((self.batch,), self.length) if self.real is None else self.real[:, : self.length].sum(-1)

    def note(self, padding: Tensor | None, batch: int, count: int) -> Tensor | None:
        """Remember which of `count` new tokens are real, and say so for all; called once a pass, before the layers."""
        if padding is None and self.real is None:
            return None
        if padding is None:
            assert self.real is not None
            padding = self.real.new_ones(batch, count)
        if self.real is None:
            self.real = padding.new_ones(batch, self.length)
        # up to the slots filled: a pass that was refused after this left a note of tokens that never came
        self.real = torch.cat((self.real[:, : self.length], padding), dim=1)
        return self.real

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was: beams that survive, sentences that have finished and leave."""
        for layer in (*self.self_attention, *self.cross_attention):
            layer.reorder(rows)
        if self.real is not None:
            self.real = self.real.index_select(0, rows)
        self.batch = rows.numel()

    def bytes(self) -> int:
        """Memory held for keys and values, spare room included."""
        return sum(layer.bytes() for layer in (*self.self_attention, *self.cross_attention))
