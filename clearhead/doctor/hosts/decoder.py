"""A decoder-only Transformer in the modern dress: RMS normalisation, grouped-query attention, rotary positions.

Learned and ALiBi positions, a sliding window, packed documents, a mixture of experts and a fused attention kernel
can be chosen, because each of them has silent bugs of its own. The cache keeps keys and values between calls.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    vocab: int = 61
    width: int = 48
    heads: int = 6
    kv_heads: int = 3
    layers: int = 2
    max_length: int = 1024
    dropout: float = 0.1
    positions: str = "rotary"  # or "learned", "alibi"
    window: int | None = None  # how many tokens a position sees, itself included
    experts: int = 0
    fused: bool = False
    tied: bool = True


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


class Cache:
    """Keys and values of each layer, and how many tokens they have come from."""

    def __init__(self, window: int | None = None) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self.length = 0
        self.window = window

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if layer in self.layers:
            keys = torch.cat([self.layers[layer][0], keys], dim=2)
            values = torch.cat([self.layers[layer][1], values], dim=2)
        keep = self.window - 1 if self.window else keys.size(2)
        self.layers[layer] = (keys[:, :, -keep:], values[:, :, -keep:])
        return keys, values

    @property
    def held(self) -> int:
        """How many keys a layer holds; with a window these are fewer than the tokens read."""
        return self.layers[0][0].size(2) if self.layers else 0

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def reorder(self, rows: Tensor) -> "Cache":
        other = Cache(self.window)
        other.length = self.length
        other.layers = {layer: (keys[rows], values[rows]) for layer, (keys, values) in self.layers.items()}
        return other


def rotary_angles(positions: Tensor, head_width: int) -> Tensor:
    """The angle of each pair of features at each position, (B, S, d); the two halves of d form the pairs."""
    frequencies = 10000.0 ** (-torch.arange(0, head_width, 2, device=positions.device) / head_width)
    angles = positions.float().unsqueeze(-1) * frequencies
    return torch.cat([angles, angles], dim=-1)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return x * angles.cos().to(x.dtype) + turned * angles.sin().to(x.dtype)


def alibi_slopes(heads: int) -> Tensor:
    """Powers of 2^(-8/n) for n heads; where n is no power of two, the gaps come from the next larger set."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes)


def causal_mask(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """(B, 1, S, T), True where the query may look: at itself and its past, no further back than the window."""
    distance = query_positions[:, None, :, None] - key_positions[:, None, None, :]
    allowed = distance >= 0
    if window is not None:
        allowed = allowed & (distance < window)
    return allowed


class Attention(nn.Module):
    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.head_width = config.width // config.heads
        self.query = nn.Linear(config.width, config.heads * self.head_width, bias=False)
        self.key_value = nn.Linear(config.width, 2 * config.kv_heads * self.head_width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(
        self, x: Tensor, angles: Tensor | None, mask: Tensor, bias: Tensor | None, cache: Cache | None
    ) -> Tensor:
        batch, length, width = x.shape
        config, groups = self.config, self.config.heads // self.config.kv_heads
        key, value = self.key_value(x).chunk(2, dim=-1)
        q = self.query(x).view(batch, length, config.heads, self.head_width).transpose(1, 2)
        k = key.view(batch, length, config.kv_heads, self.head_width).transpose(1, 2)
        v = value.view(batch, length, config.kv_heads, self.head_width).transpose(1, 2)
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)
        k = k.repeat_interleave(groups, dim=1)
        v = v.repeat_interleave(groups, dim=1)
        mixed = self.mix_fused(q, k, v, mask) if config.fused else self.mix(q, k, v, mask, bias)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_width)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1) * mask.any(dim=-1, keepdim=True)
        weights = F.dropout(weights, self.config.dropout, self.training)
        return weights @ v

    def mix_fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        dropout = self.config.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return torch.where(mask.any(dim=-1, keepdim=True), mixed, 0.0)


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Experts(nn.Module):
    """Each token goes to the expert with the highest gate, whoever else is in the batch."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(width) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        gates = self.gate(x).softmax(dim=-1)
        chosen = F.one_hot(gates.argmax(dim=-1), gates.size(-1)).to(gates.dtype) * gates
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mixed = mixed + chosen[..., number, None] * expert(x)
        return mixed


class Block(nn.Module):
    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.attention_norm, self.feedforward_norm = Norm(config.width), Norm(config.width)
        self.attention = Attention(config, layer)
        self.feedforward = Experts(config.width, config.experts) if config.experts else FeedForward(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, angles: Tensor | None, mask: Tensor, bias: Tensor | None, cache: Cache | None
    ) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), angles, mask, bias, cache))
        return x + self.dropout(self.feedforward(self.feedforward_norm(x)))


def place(index: Tensor, padding: Tensor | None, documents: Tensor | None) -> Tensor:
    """The position of each token: counted over real tokens, from the start of its document."""
    if documents is not None:
        return (documents[:, :, None] == documents[:, None, :]).tril().sum(dim=-1) - 1
    if padding is not None:
        return (padding.long().cumsum(dim=-1) - 1).clamp(min=0)
    return index


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        if config.positions == "learned":
            self.position = nn.Embedding(config.max_length, config.width)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
        self.norm = Norm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.apply(self.initialise)
        if config.tied:
            self.head.weight = self.embedding.weight

    def initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def forward(
        self,
        tokens: Tensor,  # (B, S)
        padding: Tensor | None = None,  # (B, S), True where there is a real token
        documents: Tensor | None = None,  # (B, S), the number of the document a token belongs to
        cache: Cache | None = None,
    ) -> Tensor:
        config, (batch, length) = self.config, tokens.shape
        offset = cache.length if cache is not None else 0
        index = torch.arange(offset, offset + length, device=tokens.device).expand(batch, -1)
        held = cache.held if cache is not None else 0
        keys = torch.arange(offset - held, offset + length, device=tokens.device).expand(batch, -1)
        mask = causal_mask(index, keys, config.window)
        if padding is not None:
            mask = mask & padding[:, None, None, :]
        if documents is not None:
            mask = mask & (documents[:, None, :, None] == documents[:, None, None, :])

        positions = place(index, padding, documents)
        x = self.embedding(tokens)
        if config.positions == "learned":
            if offset + length > config.max_length:
                raise ValueError(f"{offset + length} tokens, but positions were learned for {config.max_length}")
            x = x + self.position(positions)
        angles = bias = None
        if config.positions == "rotary":
            angles = rotary_angles(positions, config.width // config.heads).unsqueeze(1)
        if config.positions == "alibi":
            distance = index[:, None, :, None] - keys[:, None, None, :]
            bias = -alibi_slopes(config.heads).view(1, -1, 1, 1) * distance

        for block in self.blocks:
            x = block(x, angles, mask, bias, cache)
        if cache is not None:
            cache.advance(length)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int) -> Tensor:
        """The most likely continuation, one token at a time."""
        cache = Cache(self.config.window)
        logits = self(tokens, cache=cache)
        for _ in range(count):
            tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
            logits = self(tokens[:, -1:], cache=cache)
        return tokens
