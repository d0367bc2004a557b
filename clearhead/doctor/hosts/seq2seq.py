"""An encoder-decoder: pre-norm, learned positions, additive float masks, cross-attention computed once for the cache.

Masks here are what many codebases pass around: a float tensor added to the scores, 0 where a query may look and
the most negative number where it may not. The output head is tied to the one embedding both sides share.
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
    max_length: int = 640
    dropout: float = 0.1
    tied: bool = True


State = dict[str, Tensor]  # what decoding keeps between steps


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.gain, self.shift)


def hide(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask, True where a query may not look, as numbers to add to the scores."""
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.query, self.key = nn.Linear(config.width, config.width), nn.Linear(config.width, config.width)
        self.value, self.out = nn.Linear(config.width, config.width), nn.Linear(config.width, config.width)

    def split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        batch, heads, length, head_width = x.shape
        return x.transpose(1, 2).reshape(batch, length, heads * head_width)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        q = self.split(self.query(x)) / math.sqrt(x.size(-1) // self.heads)
        scores = torch.matmul(q, keys.transpose(-1, -2))
        if mask is not None:
            scores = torch.maximum(scores + mask, torch.tensor(torch.finfo(scores.dtype).min, dtype=scores.dtype))
        weights = F.dropout(F.softmax(scores, dim=-1), self.dropout, self.training)
        return self.out(self.merge(torch.matmul(weights, values)))


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(config.width, 4 * config.width), nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))


class EncoderLayer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention, self.feedforward = Attention(config), FeedForward(config)
        self.norms = nn.ModuleList(Norm(config.width) for _ in range(2))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        y, attention = self.norms[0](x), self.attention
        keys, values = attention.split(attention.key(y)), attention.split(attention.value(y))
        x = x + self.dropout(attention(y, keys, values, mask))
        return x + self.dropout(self.feedforward(self.norms[1](x)))


class DecoderLayer(nn.Module):
    def __init__(self, config: Config, number: int) -> None:
        super().__init__()
        self.number = number
        self.attention, self.cross, self.feedforward = Attention(config), Attention(config), FeedForward(config)
        self.norms = nn.ModuleList(Norm(config.width) for _ in range(3))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor, source_mask: Tensor | None, state: State | None
    ) -> Tensor:
        y, attention, cross = self.norms[0](x), self.attention, self.cross
        keys, values = attention.split(attention.key(y)), attention.split(attention.value(y))
        if state is not None:
            keys, values = self.remember(state, keys, values)
        x = x + self.dropout(attention(y, keys, values, mask))
        memory_keys, memory_values = self.recall(state, memory)
        x = x + self.dropout(cross(self.norms[1](x), memory_keys, memory_values, source_mask))
        return x + self.dropout(self.feedforward(self.norms[2](x)))

    def remember(self, state: State, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if f"keys{self.number}" in state:
            keys = torch.cat([state[f"keys{self.number}"], keys], dim=2)
            values = torch.cat([state[f"values{self.number}"], values], dim=2)
        state[f"keys{self.number}"], state[f"values{self.number}"] = keys, values
        return keys, values

    def recall(self, state: State | None, memory: Tensor) -> tuple[Tensor, Tensor]:
        if state is not None and f"memory_keys{self.number}" in state:
            return state[f"memory_keys{self.number}"], state[f"memory_values{self.number}"]
        keys, values = self.cross.split(self.cross.key(memory)), self.cross.split(self.cross.value(memory))
        if state is not None:
            state[f"memory_keys{self.number}"], state[f"memory_values{self.number}"] = keys, values
        return keys, values


class Seq2Seq(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.position = nn.Embedding(config.max_length, config.width)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, number) for number in range(config.layers))
        self.encoder_norm, self.decoder_norm = Norm(config.width), Norm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)
        if config.tied:
            self.head.weight = self.embedding.weight

    def embed(self, tokens: Tensor, offset: int = 0) -> Tensor:
        positions = torch.arange(offset, offset + tokens.size(1), device=tokens.device)
        return self.dropout(self.embedding(tokens) + self.position(positions))

    def encode(self, source: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.embed(source)
        mask = hide(~padding[:, None, None, :], x.dtype) if padding is not None else None
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def decode(
        self,
        memory: Tensor,  # (B, T, D)
        target: Tensor,  # (B, S)
        source_padding: Tensor | None = None,  # (B, T), True where there is a real token
        target_padding: Tensor | None = None,  # (B, S)
        state: State | None = None,
    ) -> Tensor:
        offset = state["keys0"].size(2) if state else 0
        x = self.embed(target, offset)
        hidden = torch.ones(target.size(1), offset + target.size(1), dtype=torch.bool).triu(1 + offset)
        if target_padding is not None:
            hidden = hidden | ~target_padding[:, None, None, :]
        mask = hide(hidden, x.dtype)
        source_mask = hide(~source_padding[:, None, None, :], x.dtype) if source_padding is not None else None
        for layer in self.decoder:
            x = layer(x, mask, memory, source_mask, state)
        return self.head(self.decoder_norm(x))

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_padding: Tensor | None = None,
        target_padding: Tensor | None = None,
    ) -> Tensor:
        memory = self.encode(source, source_padding)
        return self.decode(memory, target, source_padding, target_padding)

    @torch.no_grad()
    def generate(self, source: Tensor, start: Tensor, count: int) -> Tensor:
        """The most likely translation, one token at a time."""
        memory, tokens = self.encode(source), start
        state: State = {}
        logits = self.decode(memory, tokens, state=state)
        for _ in range(count):
            tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
            logits = self.decode(memory, tokens[:, -1:], state=state)
        return tokens


def reorder(state: State, rows: Tensor) -> State:
    """The state of other hypotheses: row i of the result is row rows[i] of the state."""
    return {name: tensor[rows] for name, tensor in state.items()}
