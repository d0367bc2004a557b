"""An encoder in the dress of 2018: post-norm, sinusoidal positions, scaled embeddings, a head for every token.

Its attention takes (S, B, D), sequence first, as PyTorch's own does by default; the layer turns the axes around it.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    vocab: int = 61
    width: int = 24
    heads: int = 3
    layers: int = 2
    max_length: int = 1024
    dropout: float = 0.1


def sinusoids(length: int, width: int) -> Tensor:
    """(length, width): sines in the even columns, cosines in the odd ones, wavelengths from 2π to 10000·2π."""
    position = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.pow(2).mean(dim=-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.gain + self.shift


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_width, self.dropout = heads, width // heads, dropout
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, padding: Tensor | None) -> Tensor:
        length, batch, width = x.shape
        q, k, v = self.in_proj(x).chunk(3, dim=-1)
        q = q.reshape(length, batch * self.heads, self.head_width).transpose(0, 1)  # (B·H, S, d)
        k = k.reshape(length, batch * self.heads, self.head_width).transpose(0, 1)
        v = v.reshape(length, batch * self.heads, self.head_width).transpose(0, 1)
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.head_width)  # (B·H, S, S)
        if padding is not None:
            hidden = ~padding.repeat_interleave(self.heads, dim=0).unsqueeze(1)  # (B·H, 1, S)
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1)
        weights = F.dropout(weights, self.dropout, self.training)
        mixed = torch.bmm(weights, v)  # (B·H, S, d)
        return self.out_proj(mixed.transpose(0, 1).reshape(length, batch, width))


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config.width, config.heads, config.dropout)
        self.attention_norm, self.feedforward_norm = Norm(config.width), Norm(config.width)
        self.up, self.down = nn.Linear(config.width, 4 * config.width), nn.Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, padding: Tensor | None) -> Tensor:
        attended = self.attention(x.transpose(0, 1), padding).transpose(0, 1)
        x = self.attention_norm(x + self.dropout(attended))
        return self.feedforward_norm(x + self.dropout(self.down(F.relu(self.up(x)))))


class Encoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.scale = math.sqrt(config.width)
        self.embedding = nn.Embedding(config.vocab, config.width)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        self.table: Tensor
        self.register_buffer("table", sinusoids(config.max_length, config.width), persistent=False)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.width, config.vocab)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """(B, S) tokens, and True where there is a real one, to (B, S, V) logits."""
        x = self.embedding(tokens) * self.scale
        x = self.dropout(x + self.table[: x.size(1)])
        for layer in self.layers:
            x = layer(x, padding)
        return self.head(x)
