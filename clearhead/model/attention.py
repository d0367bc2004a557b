"""Attention (section 3.2): each query looks at all keys, and mixes their values by how well they match.

First as a pure function, `softmax(q kᵀ / √d) v`, then as the module that owns the projections. `split_heads`,
`merge_heads` and the `attend` function are separate and replaceable, so that an experiment can put a broken or a
different one in their place. The fused twin of the pure function is at the bottom.
"""

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.cache import AttentionCache
from clearhead.model.config import ModelConfig
from clearhead.model.dropout import dropout
from clearhead.model.masks import causal_mask, check_may_attend, combine
from clearhead.model.norm import build_norm
from clearhead.model.positions import rotate
from clearhead.model.trace import recording, tap


class Attend(Protocol):
    """What MultiHeadAttention needs from an attention mechanism; the weights may be None if it never makes them."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        may_attend: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        dropout_rate: float = 0.0,
    ) -> tuple[Tensor, Tensor | None]: ...


def attention(
    q: Tensor,  # (B, H, S, d)
    k: Tensor,  # (B, G, T, d), G divides H
    v: Tensor,  # (B, G, T, d)
    may_attend: Tensor | None = None,  # (S, T), or broadcasts to (B, H, S, T); True = may look
    bias: Tensor | None = None,  # added to the scores: ALiBi
    causal: bool = False,  # query i sees keys up to its own; the last query sees all
    dropout_rate: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √d) v. Returns the mixed values and the weights that mixed them."""
    check_fit(q, k, v)
    check_may_attend(may_attend, (*q.shape[:3], k.size(2)))
    if causal:
        may_attend = combine(may_attend, causal_mask(q.size(-2), k.size(-2), q.device))
    if k.size(1) != q.size(1):  # grouped-query attention: neighbouring query heads share a key/value head
        k = k.repeat_interleave(q.size(1) // k.size(1), dim=1)
        v = v.repeat_interleave(q.size(1) // v.size(1), dim=1)
    # √d because q·k sums d products of variance one: without it the softmax saturates as heads grow wide
    scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)  # (B, H, S, T)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    scores = tap("scores", scores, "B H S T")
    if may_attend is not None:
        # before the softmax: masking afterwards leaves rows that no longer sum to one
        may_attend = tap("mask", may_attend, "S T" if may_attend.dim() == 2 else "B H S T")
        scores = scores.masked_fill(~may_attend, -math.inf)
    weights = tap("weights", softmax_or_zeros(scores), "B H S T")
    return dropout(weights, dropout_rate, training=True, fused=False) @ v, weights


def softmax_or_zeros(scores: Tensor) -> Tensor:
    """exp(s) / Σ exp(s) over the last dimension; a query with nothing to look at (all −∞) gets zeros, not NaN.

    Subtracting the largest score changes nothing in the result and keeps exp from overflowing; computed in at least
    float32, because a long sum of 16-bit numbers stops growing.
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    top = wide.amax(-1, keepdim=True).detach()
    top = torch.where(top == -math.inf, 0.0, top)
    powers = torch.exp(wide - top)
    total = powers.sum(-1, keepdim=True)
    return (powers / torch.where(total == 0, 1.0, total)).to(scores.dtype)


def check_fit(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse what does not belong together, instead of broadcasting it into nonsense."""
    fits = q.dim() == k.dim() == 4 and k.shape[:-1] == v.shape[:-1] and q.size(1) % k.size(1) == 0
    if not fits or k.shape[::3] != q.shape[::3]:  # B and d
        raise InputError(
            "attention needs q (B, H, S, d), k (B, G, T, d) and v (B, G, T, d) with G dividing H; "
            f"found q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        )


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, S, H·d) -> (B, H, S, d). View first, then transpose: a view straight to (B, H, S, d) would mix tokens."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, S, d) -> (B, S, H·d), the inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """Attend in H subspaces at once (section 3.2.2). All heads' projections are one matrix, which is the same thing."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        width, inner, shared = config.d_model, config.heads * config.d_head, config.key_value_heads * config.d_head
        bias = config.bias if config.qkv_bias is None else config.qkv_bias
        self.query = nn.Linear(width, inner, bias=bias)
        self.key = nn.Linear(width, shared, bias=bias)
        self.value = nn.Linear(width, shared, bias=bias)
        self.out = nn.Linear(inner, width, bias=config.bias)
        self.query_norm = build_norm(config, config.d_head) if config.qk_norm else None
        self.key_norm = build_norm(config, config.d_head) if config.qk_norm else None
        self.heads, self.key_value_heads = config.heads, config.key_value_heads
        self.layout = config.positions.layout
        self.dropout = config.dropout.attention
        self.attend: Attend = attend or (attention if config.kernels == "plain" else fused_attention)
        self.split_heads, self.merge_heads = split_heads, merge_heads

    def forward(
        self,
        x: Tensor,  # (B, S, D) where the queries come from
        inputs: AttentionInputs,  # whom they may look at, and how positions enter
        memory: Tensor | None = None,  # (B, T, D) where keys and values come from; None: from x itself
        cache: AttentionCache | None = None,
    ) -> Tensor:  # (B, S, D)
        q = self.split_heads(self.query(x), self.heads)  # (B, H, S, d)
        q = q if self.query_norm is None else self.query_norm(q)
        if memory is not None and cache is not None and cache.length:
            k, v = cache.all()  # a memory does not change while decoding: projected once
        else:
            k = self.split_heads(self.key(x if memory is None else memory), self.key_value_heads)  # (B, G, T, d)
            v = self.split_heads(self.value(x if memory is None else memory), self.key_value_heads)
            k = k if self.key_norm is None else self.key_norm(k)
            if inputs.rotation is not None:
                q, k = rotate(q, *inputs.rotation, self.layout), rotate(k, *inputs.rotation, self.layout)
            if cache is not None:
                k, v = cache.append(k, v)
        q, k, v = tap("q", q, "B H S d"), tap("k", k, "B G T d"), tap("v", v, "B G T d")
        context, _ = self.attend(q, k, v, inputs.may_attend, inputs.bias, inputs.causal, self.dropout * self.training)
        return tap("output", self.out(self.merge_heads(tap("context", context, "B H S d"))), "B S D")


# ---- the fused twin ------------------------------------------------------------------------------------------------

SHORT = 64  # keys


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    may_attend: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    dropout_rate: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """The same values as `attention`, without holding (S, T) scores for long. Makes no weights to look at."""
    if recording():
        return attention(q, k, v, may_attend, bias, causal, dropout_rate)
    check_fit(q, k, v)
    check_may_attend(may_attend, (*q.shape[:3], k.size(2)))
    # few keys: plain matrix products, which two threads share better than the kernel's tiles
    short = k.size(-2) <= SHORT and q.device.type == "cpu"
    if causal and (short or may_attend is not None or bias is not None or q.size(-2) != k.size(-2)):
        # the kernel's own causal mask is aligned top left and takes no other beside it
        may_attend, causal = combine(may_attend, causal_mask(q.size(-2), k.size(-2), q.device)), False
    if short:
        if q.size(1) != k.size(1):
            k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1) for x in (k, v))
        scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)
        scores = scores if bias is None else scores + bias.to(q.dtype)
        if may_attend is None:
            return dropout(torch.softmax(scores, -1), dropout_rate, training=True, fused=True) @ v, None
        # very low but finite, so that a query with nothing to look at has no NaN; what it mixes is then taken back
        low = torch.zeros(may_attend.shape, dtype=q.dtype).masked_fill(~may_attend, torch.finfo(q.dtype).min / 2)
        weights = dropout(torch.softmax(scores + low, -1), dropout_rate, training=True, fused=True)
        return weights @ v * may_attend.any(-1, keepdim=True), None
    if q.size(-2) == 1 and q.size(1) != k.size(1):  # decoding: no key is repeated for the heads that share it
        mask, added = (None if x is None else fold_heads(x, k.size(1)) for x in (may_attend, bias))
        context, _ = fused_attention(fold_heads(q, k.size(1)), k, v, mask, added, dropout_rate=dropout_rate)
        return context.reshape(*q.shape[:3], v.size(-1)), None
    if bias is not None:
        bias = bias.to(q.dtype)
        may_attend = bias if may_attend is None else bias.masked_fill(~may_attend, -math.inf)
    return F.scaled_dot_product_attention(q, k, v, may_attend, dropout_rate, causal, enable_gqa=True), None


def fold_heads(x: Tensor, key_value_heads: int) -> Tensor:
    """(B, H, 1, T) -> (B, G, H/G, T): the single queries of the heads that share a key head, as queries of one head."""
    if x.dim() == 2:
        return x[None, None]
    # every size in full: where the batch is empty, -1 could be anything
    return x if x.size(1) == 1 else x.reshape(x.size(0), key_value_heads, x.size(1) // key_value_heads, x.size(-1))
