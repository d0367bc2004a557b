"""Small models in the styles that are met elsewhere, each with switches for what the doctor must tell apart."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    """Pre-norm attention and feed-forward; the mask is added to the scores inside the fused kernel."""

    def __init__(self, width: int, heads: int, attention_dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, attention_dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Any]:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        drop = self.attention_dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype), dropout_p=drop)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), (k, v)


class Small(nn.Module):
    """A language model (or, with causal=False, an encoder) whose positions come as `positions` says."""

    def __init__(
        self,
        vocab: int = 61,
        width: int = 24,
        heads: int = 3,
        layers: int = 2,
        max_length: int = 640,
        dropout: float = 0.1,
        positions: str = "absolute",
        causal: bool = True,
        attention_dropout: float | None = None,  # None: as `dropout` says
        pad: int | None = None,  # hidden by its id
        prefix: int = 0,  # the first tokens, which see each other both ways
    ) -> None:
        super().__init__()
        self.prefix = prefix
        self.heads, self.positions, self.causal, self.pad = heads, positions, causal, pad
        self.embedding = nn.Embedding(vocab, width, padding_idx=pad)
        if positions == "absolute":
            self.table = nn.Parameter(0.02 * torch.randn(max_length, width))
        if positions == "buckets":
            self.near = nn.Embedding(32, heads)
        self.drop = nn.Dropout(dropout)
        inner = dropout if attention_dropout is None else attention_dropout
        self.layers = nn.ModuleList(Layer(width, heads, inner) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def bias(self, distance: Tensor) -> Tensor:
        """(H, S, T), what is added to the scores: ALiBi's slopes, or a value for each bucket of distances."""
        if self.positions == "alibi":
            power = 2 ** math.floor(math.log2(self.heads))
            slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
            slopes += [2.0 ** (-4 * (2 * i + 1) / power) for i in range(self.heads - power)]
            return -torch.tensor(slopes)[:, None, None] * distance.abs()
        if self.positions == "buckets":
            far = 8 + (distance.abs().clamp(min=1) / 8).log() / math.log(16) * 8
            bucket = torch.where(distance.abs() < 8, distance.abs(), far.long().clamp(8, 15)) + 16 * (distance < 0)
            return self.near(bucket).permute(2, 0, 1)
        return torch.zeros(self.heads, *distance.shape)

    def forward(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        return self.step(tokens, real, None)[0]

    def step(self, tokens: Tensor, real: Tensor | None, past: list[Any] | None) -> tuple[Tensor, list[Any]]:
        """Logits, and the keys and values of each layer; `past` holds those of earlier tokens."""
        offset = past[0][0].size(2) if past else 0
        total = offset + tokens.size(1)
        index = torch.arange(total)
        distance = index[offset:, None] - index[None, :]
        mask = self.bias(distance)[None]
        if self.causal:
            both_ways = (index[offset:, None] < self.prefix) & (index[None, :] < self.prefix)
            mask = mask.masked_fill((distance < 0) & ~both_ways, -math.inf)
        if self.pad is not None:
            real = tokens != self.pad
        if real is not None:
            mask = mask.masked_fill(~real[:, None, None, :], -math.inf)
        x = self.embedding(tokens)
        if self.positions == "absolute":
            x = x + self.table[offset:total]
        x = self.drop(x)
        kept = []
        for number, layer in enumerate(self.layers):
            x, pair = layer(x, mask, past[number] if past else None)
            kept.append(pair)
        return self.head(self.norm(x)), kept


def plain(model: nn.Module, tokens: Tensor) -> Tensor:
    return model(tokens)


def masked(model: nn.Module, tokens: Tensor, real: Tensor | None = None) -> Tensor:
    return model(tokens, real)


def cached(model: Any, tokens: Tensor, cache: list[Any] | None) -> tuple[Tensor, list[Any]]:
    return model.step(tokens, None, cache)
