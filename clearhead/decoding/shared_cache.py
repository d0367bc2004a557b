"""The KV cache of a search with beams, for models that prepared.py knows: the beams of a sentence share its keys.

A row is a sentence, and a step brings k new tokens of it side by side, one for each beam. Each sees all that its own
beam wrote, and a mask hides the rest. When beams change places only the mask moves, never the keys; now and then what
no beam sees any more is dropped. The same for the source: it stays one memory for all beams of its sentence. To the
model's code this is a cache like any other: it asks where the keys stand and which may be seen, and gets both here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.model import KVCache, ModelConfig

TIDY_EVERY = 16  # steps between two looks at what no beam sees any more


class SharedKeys:
    """One layer's part of the cache, as its self-attention uses it."""

    def __init__(self) -> None:
        self.fresh, self.keys, self.values = torch.empty(0), torch.empty(0), torch.empty(0)

    def append(self, made: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values (B, k, 2, G, d); returns all: keys (B·G, d, T) and values (B·G, T, d)."""
        self.fresh.copy_(made.permute(2, 0, 3, 1, 4))
        return self.keys, self.values


class SourceKeys:
    """The source of each sentence, as one layer's cross-attention sees it."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None  # (B·G, d, T): the order in which it is read
        self.values: Tensor | None = None  # (B·G, T, d)
        self.scores_from: Callable[[Tensor], Tensor] | None = None  # query and keys as one map, for one short source
        self.output_from: Callable[[Tensor], Tensor] | None = None  # values and output, likewise

    def fill(self, made: Tensor) -> None:
        """Keys and values (B, T, 2, G, d) of the memory."""
        self.heads = made.size(3)
        self.keys = made[:, :, 0].permute(0, 2, 3, 1).flatten(0, 1).contiguous()
        self.values = made[:, :, 1].transpose(1, 2).flatten(0, 1).contiguous()

    def all(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def keep(self, sentences: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            rows = (sentences[:, None] * self.heads + torch.arange(self.heads)).flatten()
            self.keys, self.values = self.keys[rows], self.values[rows]


@dataclass(frozen=True)
class SharedLayer:
    """In the place of `LayerCache`."""

    self_attention: SharedKeys
    cross_attention: SourceKeys


class SharedCache:
    """All layers. Room for keys and values is one tensor, so that views for every layer are made in one go: a view
    costs as much as a small product."""

    def __init__(self, config: ModelConfig, batch: int, like: Tensor, prompt: KVCache | None = None) -> None:
        self.batch, self.beams = batch, 1
        self.filled = self.length = 0 if prompt is None else prompt.length  # keys; tokens in each row, padding included
        shape = (config.decoder_layers, 2, batch, config.key_value_heads, max(64, 2 * self.filled), config.d_head)
        self.room = like.new_empty(shape)
        self.layers = [SharedLayer(SharedKeys(), SourceKeys()) for _ in range(config.decoder_layers)]
        self.counted = torch.arange(shape[4])[None]
        self.positions = self.counted[:, : self.filled]  # (1 or B, filled): where each key stands
        self.pads: Tensor | None = None  # (B, 1): tokens of each row that are padding; None: none anywhere
        self.seen: Tensor | None = None  # (B, k, filled): which keys each beam may see; None: all
        if prompt is not None:
            self._take(prompt)

    def _take(self, prompt: KVCache) -> None:
        """Take over what reading the prompts left behind."""
        for layer, room in zip(prompt.self_attention, self.room, strict=True):
            room[0, :, :, : self.filled], room[1, :, :, : self.filled] = layer.all()
        if prompt.real is not None:
            self.pads = (~prompt.real).sum(-1, keepdim=True)
            self.positions = (self.positions - self.pads).clamp(min=0)
            self.seen = prompt.real[:, None]

    def admit(
        self, tokens: Tensor, real: Tensor | None, documents: Tensor | None
    ) -> tuple[Tensor, Tensor | None, bool]:
        """Make room for a step's tokens (B, k); as `KVCache.admit`, where the new ones do not follow each other."""
        beams, before = self.beams, self.filled
        self.length += 1
        self.filled += beams
        if self.filled > self.room.size(4):
            room = self.room.new_empty(*self.room.shape[:4], 2 * self.filled, self.room.size(5))
            room[..., :before, :] = self.room[..., :before, :]
            self.room, self.counted = room, torch.arange(room.size(4))[None]
        if self.pads is None and beams == 1:
            self.positions = self.counted[:, : self.filled]
        else:
            now = self.length - 1 - (0 if self.pads is None else self.pads)  # the position of each row's new tokens
            rows = torch.as_tensor(now).expand(self.batch, beams)
            self.positions = torch.cat((self.positions.expand(self.batch, -1), rows), dim=1)
        if self.seen is not None:
            own = torch.eye(beams, dtype=torch.bool).expand(len(self.seen), -1, -1)
            self.seen = torch.cat((self.seen, own), dim=2)
        self._views(before)
        return self.positions, None if self.seen is None else self.seen[:, None], False

    def _views(self, before: int) -> None:
        filled = self.room[..., : self.filled, :].flatten(2, 3)  # (L, 2, B·G, filled, d)
        keys, values = filled[:, 0].transpose(2, 3).unbind(0), filled[:, 1].unbind(0)
        fresh = self.room[..., before : self.filled, :].unbind(0)  # (2, B, G, k, d) each
        for number, layer in enumerate(self.layers):
            own = layer.self_attention
            own.fresh, own.keys, own.values = fresh[number], keys[number], values[number]

    # ---- rows come and go ------------------------------------------------------------------------------------------

    def widen(self, beams: int) -> None:
        """Beams of one sentence share what is in the cache; from now on each writes its own."""
        self.beams = beams
        if self.seen is not None:
            self.seen = self.seen.expand(-1, beams, -1)
        elif beams > 1:
            self.seen = torch.ones(self.batch, beams, self.filled, dtype=torch.bool)

    def select(self, sentences: Tensor, parents: Tensor) -> None:
        """Sentence i becomes what sentences[i] (B,) was, and its beam j what its beam parents[i, j] (B, k) was."""
        if self.seen is not None:
            self.seen = self.seen[sentences].gather(1, parents[..., None].expand(-1, -1, self.filled))
        moved = sentences.numel() != self.batch or not torch.equal(sentences, torch.arange(self.batch))
        if self.beams > 1 and self.length % TIDY_EVERY == 0:
            self._tidy(sentences)
        elif moved:
            self.room = self.room[:, :, sentences]
            self.positions = self.positions[sentences] if len(self.positions) > 1 else self.positions
        if moved:
            self.batch = sentences.numel()
            self.pads = None if self.pads is None else self.pads[sentences]
            for layer in self.layers:
                layer.cross_attention.keep(sentences)

    def _tidy(self, sentences: Tensor) -> None:
        """Drop the keys that no beam of their sentence sees any more: lines of descent that have died out."""
        assert self.seen is not None
        seen = self.seen.any(1)  # (B, filled)
        most = int(seen.sum(1).max())
        order = torch.argsort(~seen, dim=1, stable=True)[:, :most]  # those seen come first, in their order
        self.seen = self.seen.gather(2, order[:, None].expand(-1, self.beams, -1))
        self.positions = self.positions[sentences if len(self.positions) > 1 else sentences * 0].gather(1, order)
        layers, two, _, shared, _, size = self.room.shape
        room = self.room.new_empty(layers, two, len(sentences), shared, most + 64 * self.beams, size)
        index = order[:, None, :, None].expand(-1, shared, -1, size)
        for old, new in zip(self.room.flatten(0, 1), room.flatten(0, 1), strict=True):
            torch.gather(old[sentences], 2, index, out=new[:, :, :most])
        self.room, self.filled = room, most
