"""An encoder-decoder of 2017 as many wrote it then: sequence first, post-norm, float masks, three-way tied weights.

Every tensor of features is (T, B, C). Masks are floats that are added to the scores, 0 for "look" and -inf for "do
not", made by three small functions. One matrix holds the projections of queries, keys and values. While decoding,
each layer remembers what it has read, and the encoder's output is computed once.
"""

import math
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

PAD = 0
SMOOTHING = 0.1
WARMUP = 40
MAX_NORM = 1.0


def square_subsequent_mask(size: int, dtype: torch.dtype) -> Tensor:
    """(S, S): row i may look at columns 0..i."""
    return torch.triu(torch.full((size, size), float("-inf"), dtype=dtype), diagonal=1)


def key_padding_mask(real: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """(B, T) with True at real tokens, to (B, 1, T) floats."""
    if real is None:
        return None
    return torch.zeros(real.shape, dtype=dtype).masked_fill(real.logical_not(), float("-inf")).unsqueeze(1)


def merge_masks(first: Tensor, second: Tensor | None) -> Tensor:
    return first if second is None else first + second


def softmax_or_zeros(scores: Tensor) -> Tensor:
    """A row that is -inf throughout has nothing to look at: it gets zeros, where softmax would give NaN."""
    empty = torch.isneginf(scores).all(dim=-1, keepdim=True)
    return F.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float, max_len: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.pe: Tensor
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        stop = start + x.size(0)
        if stop > self.max_len:
            raise ValueError(f"{stop} positions asked for, the table has {self.max_len}")
        return self.dropout(x + self.pe[start:stop])


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, nhead: int, dropout: float) -> None:
        super().__init__()
        self.nhead, self.head_dim, self.dropout = nhead, d_model // nhead, dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj = nn.Linear(d_model, d_model)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def project(self, query: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d_model = query.size(-1)
        w_q, w_kv = self.in_proj_weight.split([d_model, 2 * d_model])
        b_q, b_kv = self.in_proj_bias.split([d_model, 2 * d_model])
        k, v = F.linear(memory, w_kv, b_kv).chunk(2, dim=-1)
        return F.linear(query, w_q, b_q), k, v

    def to_heads(self, x: Tensor) -> Tensor:
        """(T, B, C) to (B*H, T, C/H)."""
        return x.contiguous().view(x.size(0), x.size(1) * self.nhead, self.head_dim).transpose(0, 1)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(S, B, C) and (T, B, C), with a mask (S, T), (B, 1, T) or (B, S, T): features (S, B, C), weights."""
        tgt_len, bsz, d_model = query.shape
        src_len = memory.size(0)
        q, k, v = self.project(query, memory)
        q = q * self.head_dim**-0.5
        q, k, v = self.to_heads(q), self.to_heads(k), self.to_heads(v)
        scores = torch.bmm(q, k.transpose(1, 2)).view(bsz, self.nhead, tgt_len, src_len)
        if mask is not None:
            scores = scores + (mask.unsqueeze(1) if mask.dim() == 3 else mask)
        weights = softmax_or_zeros(scores)
        dropped = F.dropout(weights, p=self.dropout, training=self.training)
        out = torch.bmm(dropped.view(bsz * self.nhead, tgt_len, src_len), v)
        out = out.transpose(0, 1).contiguous().view(tgt_len, bsz, d_model)
        return self.out_proj(out), weights


class FeedForward(nn.Sequential):
    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))


class EncoderLayer(nn.Module):
    def __init__(self, d_model: int, nhead: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, nhead, dropout)
        self.ffn = FeedForward(d_model, 4 * d_model, dropout)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        attended, _ = self.self_attn(src, src, src_mask)
        src = self.norm1(src + self.dropout1(attended))
        return self.norm2(src + self.dropout2(self.ffn(src)))


class DecoderLayer(nn.Module):
    def __init__(self, d_model: int, nhead: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, nhead, dropout)
        self.cross_attn = MultiHeadAttention(d_model, nhead, dropout)
        self.ffn = FeedForward(d_model, 4 * d_model, dropout)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(dropout) for _ in range(3))

    def forward(
        self, tgt: Tensor, seen: Tensor, memory: Tensor, tgt_mask: Tensor, memory_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """`seen` is everything this layer has read so far, `tgt` the last of it."""
        attended, _ = self.self_attn(tgt, seen, tgt_mask)
        tgt = self.norm1(tgt + self.dropout1(attended))
        attended, weights = self.cross_attn(tgt, memory, memory_mask)
        tgt = self.norm2(tgt + self.dropout2(attended))
        return self.norm3(tgt + self.dropout3(self.ffn(tgt))), weights


class State(NamedTuple):
    """What decoding keeps between steps."""

    memory: Tensor  # (T, B, C)
    memory_mask: Tensor | None  # (B, 1, T)
    seen: tuple[Tensor, ...] = ()  # for each layer (S, B, C): its inputs so far

    def rows(self, index: Tensor) -> "State":
        mask = None if self.memory_mask is None else self.memory_mask[index]
        return State(self.memory[:, index], mask, tuple(inputs[:, index] for inputs in self.seen))


class Transformer(nn.Module):
    def __init__(
        self, vocab_size: int, d_model: int, nhead: int, num_layers: int, max_len: int = 512, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.src_embed = nn.Embedding(vocab_size, d_model)
        self.tgt_embed = nn.Embedding(vocab_size, d_model)
        self.pos_encoder = PositionalEncoding(d_model, dropout, max_len)
        self.encoder = nn.ModuleList([EncoderLayer(d_model, nhead, dropout) for _ in range(num_layers)])
        self.decoder = nn.ModuleList([DecoderLayer(d_model, nhead, dropout) for _ in range(num_layers)])
        self.generator = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.normal_(self.src_embed.weight, mean=0.0, std=d_model**-0.5)
        self.tgt_embed.weight = self.src_embed.weight
        self.generator.weight = self.tgt_embed.weight

    def encode(self, src: Tensor, src_real: Tensor | None = None) -> State:
        x = self.pos_encoder(self.src_embed(src) * math.sqrt(self.d_model))
        mask = key_padding_mask(src_real, x.dtype)
        for layer in self.encoder:
            x = layer(x, mask)
        return State(x, mask)

    def decode(self, tgt: Tensor, state: State, tgt_real: Tensor | None = None) -> tuple[Tensor, Tensor, State]:
        """(S, B) tokens that follow what the state has seen: logits (S, B, V), weights (B, H, S, T), the new state."""
        past = state.seen[0].size(0) if state.seen else 0
        x = self.pos_encoder(self.tgt_embed(tgt) * math.sqrt(self.d_model), start=past)
        causal = square_subsequent_mask(past + tgt.size(0), x.dtype)[past:]
        tgt_mask = merge_masks(causal, key_padding_mask(tgt_real, x.dtype))
        weights, seen = x.new_empty(0), []
        for number, layer in enumerate(self.decoder):
            inputs = torch.cat([state.seen[number], x], dim=0) if state.seen else x
            seen.append(inputs)
            x, weights = layer(x, inputs, state.memory, tgt_mask, state.memory_mask)
        return self.generator(x), weights, state._replace(seen=tuple(seen))

    def forward(
        self,
        src: Tensor,  # (T, B)
        tgt: Tensor,  # (S, B)
        src_real: Tensor | None = None,  # (B, T)
        tgt_real: Tensor | None = None,  # (B, S)
    ) -> tuple[Tensor, Tensor]:
        logits, weights, _ = self.decode(tgt, self.encode(src, src_real), tgt_real)
        return logits, weights

    @torch.no_grad()
    def greedy(self, src: Tensor, start: Tensor, steps: int, src_real: Tensor | None = None) -> Tensor:
        state = self.encode(src, src_real)
        ys, step = start, start
        for _ in range(steps):
            logits, _, state = self.decode(step, state)
            step = logits[-1:].argmax(dim=-1)
            ys = torch.cat([ys, step], dim=0)
        return ys


def seq2seq_loss(model: nn.Module, src: Tensor, tgt: Tensor, reduction: str = "mean") -> Tensor:
    """(T, B) and (S, B): the decoder reads all of the target but its last token, and predicts all but the first."""
    tgt_in, tgt_out = tgt[:-1], tgt[1:]
    logits, _ = model(src, tgt_in, (src != PAD).t(), (tgt_in != PAD).t())
    return F.cross_entropy(
        logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD, reduction=reduction, label_smoothing=SMOOTHING
    )


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)


def rate(step: int, d_model: int = 512) -> float:
    """The paper's schedule; the first step is step 0."""
    step += 1
    return d_model**-0.5 * min(step**-0.5, step * WARMUP**-1.5)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: list[tuple[Tensor, Tensor]]) -> float:
    """One update from several pairs of (T, B) and (S, B); every target token has the same weight in it."""
    ntokens = sum(int((tgt[1:] != PAD).sum()) for _, tgt in micro_batches)
    optimizer.zero_grad()
    total = 0.0
    for src, tgt in micro_batches:
        loss = seq2seq_loss(model, src, tgt, reduction="sum") / ntokens
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    return total
