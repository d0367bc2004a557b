"""A decoder in the style of Gemma-2 and Mistral: capped scores, norms around each sub-layer, layers slide in turns.

Every `sliding_every`-th layer, the first one included, sees the last `sliding_window` tokens only, itself included, and
its cache keeps no more. Batches carry a mask over past and present tokens; positions are its cumulative sum.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, IGNORE = 0, -100
PEAK_LR, MIN_LR = 2e-3, 2e-4
WARMUP_STEPS, TOTAL_STEPS = 30, 400
GRAD_CLIP, WEIGHT_DECAY = 1.0, 0.1

Pair = tuple[Tensor, Tensor]


@dataclass
class CappedConfig:
    vocab_size: int = 61
    hidden_size: int = 24
    num_heads: int = 4
    num_kv_heads: int = 2
    num_layers: int = 2
    sliding_window: int = 6
    sliding_every: int = 2
    rope_theta: float = 10000.0
    attn_softcap: float = 20.0
    final_softcap: float = 30.0
    dropout: float = 0.1
    rms_eps: float = 1e-6
    init_std: float = 0.05

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


class DynamicCache:
    """Rotated keys and values of every layer, (B, G, T, d); layers that slide keep the last `keep` of them."""

    def __init__(self) -> None:
        self.key_cache: list[Tensor] = []
        self.value_cache: list[Tensor] = []
        self.seen = 0

    def update(self, k: Tensor, v: Tensor, layer: int, keep: int | None = None) -> Pair:
        """Past and new keys and values; what is kept for the next call may be less."""
        if layer == 0:
            self.seen += k.size(2)
        if layer == len(self.key_cache):
            self.key_cache.append(k[:, :, :0])
            self.value_cache.append(v[:, :, :0])
        k = torch.cat([self.key_cache[layer], k], dim=2)
        v = torch.cat([self.value_cache[layer], v], dim=2)
        start = 0 if keep is None else max(0, k.size(2) - keep)
        self.key_cache[layer], self.value_cache[layer] = k[:, :, start:], v[:, :, start:]
        return k, v

    def reorder(self, rows: Tensor) -> "DynamicCache":
        chosen = DynamicCache()
        chosen.key_cache = [k.index_select(0, rows) for k in self.key_cache]
        chosen.value_cache = [v.index_select(0, rows) for v in self.value_cache]
        chosen.seen = self.seen
        return chosen


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        norm = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * norm * (1.0 + self.weight)


def softcap(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap)


def rope(position_ids: Tensor, config: CappedConfig, dtype: torch.dtype) -> Pair:
    """Cosines and sines, (B, 1, S, d)."""
    exponent = torch.arange(0, config.head_dim, 2, device=position_ids.device).double() / config.head_dim
    freqs = position_ids.double()[..., None] * config.rope_theta**-exponent
    emb = torch.cat([freqs, freqs], dim=-1)[:, None]
    return emb.cos().to(dtype), emb.sin().to(dtype)


def rotate_half(x: Tensor) -> Tensor:
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([-x2, x1], dim=-1)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + rotate_half(x) * sin


def repeat_kv(x: Tensor, groups: int) -> Tensor:
    """(B, G, T, d) to (B, H, T, d): query head h reads key head h // groups."""
    bsz, kv_heads, length, dim = x.shape
    return x[:, :, None].expand(bsz, kv_heads, groups, length, dim).reshape(bsz, kv_heads * groups, length, dim)


def get_masks(attention_mask: Tensor, position_ids: Tensor, q_len: int, window: int, documents: Tensor | None) -> Pair:
    """What full and sliding layers may see, (B, 1, S, T) each; the last `q_len` of the T tokens are the queries."""
    slots = torch.arange(attention_mask.size(1), device=attention_mask.device)
    causal = slots[None, :] <= slots[-q_len:, None]
    full = causal & attention_mask[:, None, :]
    if documents is not None:
        full = full & (documents[:, -q_len:, None] == documents[:, None, :])
    distance = position_ids[:, -q_len:, None] - position_ids[:, None, :]
    sliding = full & (distance < window)
    return full[:, None], sliding[:, None]


class Attention(nn.Module):
    def __init__(self, config: CappedConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.is_sliding = layer % config.sliding_every == 0
        self.keep = config.sliding_window - 1 if self.is_sliding else None
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.scaling = self.head_dim**-0.5
        self.softcap, self.dropout = config.attn_softcap, config.dropout
        self.q_proj = nn.Linear(config.hidden_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = softcap(torch.matmul(q, k.transpose(2, 3)) * self.scaling, self.softcap)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = F.dropout(scores.softmax(dim=-1), self.dropout, self.training)
        return torch.matmul(weights, v)

    def forward(self, x: Tensor, rotary: Pair, masks: Pair, cache: DynamicCache | None, q_block: int | None) -> Tensor:
        bsz, q_len, _ = x.shape
        q = self.q_proj(x).view(bsz, q_len, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(bsz, q_len, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(bsz, q_len, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = apply_rope(q, *rotary), apply_rope(k, *rotary)
        if cache is not None:
            k, v = cache.update(k, v, self.layer, self.keep)
        k, v = (repeat_kv(t, self.heads // self.kv_heads) for t in (k, v))
        full, sliding = masks
        mask = (sliding if self.is_sliding else full)[..., -k.size(2) :]
        step = q_block or q_len  # queries may go in blocks, to save memory
        blocks = [self.attend(q[:, :, i : i + step], k, v, mask[:, :, i : i + step]) for i in range(0, q_len, step)]
        out = torch.cat(blocks, dim=2).transpose(1, 2).reshape(bsz, q_len, -1)
        return self.o_proj(out)


class GeGLU(nn.Module):
    def __init__(self, config: CappedConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, 2 * config.hidden_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, 2 * config.hidden_size, bias=False)
        self.down_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = F.gelu(self.gate_proj(x), approximate="tanh")
        return self.down_proj(gate * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, config: CappedConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer)
        self.mlp = GeGLU(config)
        self.pre_attn_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.post_attn_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.pre_mlp_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.post_mlp_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        h = self.self_attn(self.pre_attn_norm(x), *context)
        x = x + self.drop(self.post_attn_norm(h))
        h = self.mlp(self.pre_mlp_norm(x))
        return x + self.drop(self.post_mlp_norm(h))


class CappedLM(nn.Module):
    def __init__(self, config: CappedConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=PAD)
        self.drop = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.apply(self.init_weights)
        self.lm_head.weight = self.embed_tokens.weight

    def init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data.normal_(std=self.config.init_std)
        if isinstance(module, nn.Embedding):
            module.weight.data[PAD].zero_()

    def forward(
        self, tokens: Tensor, attention_mask: Tensor | None = None, documents: Tensor | None = None,
        cache: DynamicCache | None = None, q_block: int | None = None,
    ) -> Tensor:  # fmt: skip
        """Logits (B, S, V) of `tokens`; the mask (B, T) also covers the tokens in the cache."""
        bsz, q_len = tokens.shape
        if attention_mask is None:
            past = 0 if cache is None else cache.seen
            attention_mask = torch.ones(bsz, past + q_len, dtype=torch.bool, device=tokens.device)
        position_ids = (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)
        masks = get_masks(attention_mask, position_ids, q_len, self.config.sliding_window, documents)
        x = self.drop(self.embed_tokens(tokens) * math.sqrt(self.config.hidden_size))
        rotary = rope(position_ids[:, -q_len:], self.config, x.dtype)
        for layer in self.layers:
            x = layer(x, rotary, masks, cache, q_block)
        return softcap(self.lm_head(self.norm(x)), self.config.final_softcap)

    @torch.no_grad()
    def generate(self, tokens: Tensor, max_new_tokens: int, attention_mask: Tensor | None = None) -> Tensor:
        """Greedy; prompts of different lengths are padded on the left."""
        was_training = self.training
        self.eval()
        cache = DynamicCache()
        mask = torch.ones_like(tokens, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        fed = tokens
        for _ in range(max_new_tokens):
            logits = self(fed, mask, cache=cache)
            fed = logits[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, fed], dim=1)
            mask = torch.cat([mask, torch.ones_like(fed, dtype=torch.bool)], dim=1)
        self.train(was_training)
        return tokens


def make_labels(tokens: Tensor) -> Tensor:
    """The next tokens, where both they and the tokens that predict them are real."""
    real = tokens.ne(PAD)
    return tokens[:, 1:].masked_fill(~(real[:, 1:] & real[:, :-1]), IGNORE)


def count_labels(tokens: Tensor) -> int:
    return int(make_labels(tokens).ne(IGNORE).sum())


def summed_loss(model: CappedLM, tokens: Tensor) -> Tensor:
    inputs, labels = tokens[:, :-1], make_labels(tokens)
    logits = model(inputs, inputs.ne(PAD))
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")


def mean_loss(model: CappedLM, tokens: Tensor) -> Tensor:
    return summed_loss(model, tokens) / max(1, count_labels(tokens))


def build_optimizer(model: CappedLM) -> torch.optim.AdamW:
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.95))


def learning_rate(step: int) -> float:
    """Linear warm-up, then half a cosine down to the floor."""
    if step < WARMUP_STEPS:
        return PEAK_LR * (step + 1) / WARMUP_STEPS
    if step >= TOTAL_STEPS:
        return MIN_LR
    progress = (step - WARMUP_STEPS) / (TOTAL_STEPS - WARMUP_STEPS)
    return MIN_LR + 0.5 * (PEAK_LR - MIN_LR) * (1.0 + math.cos(math.pi * progress))


def update(model: CappedLM, optimizer: torch.optim.Optimizer, micro_batches: list[Tensor]) -> float:
    """One step down the mean over all labels of all micro-batches."""
    model.train()
    optimizer.zero_grad(set_to_none=True)
    labels = max(1, sum(count_labels(tokens) for tokens in micro_batches))
    total = 0.0
    for tokens in micro_batches:
        loss = summed_loss(model, tokens) / labels
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), GRAD_CLIP)
    optimizer.step()
    return total


def train(model: CappedLM, steps: Iterable[list[Tensor]]) -> None:
    optimizer = build_optimizer(model)
    for step, micro_batches in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        update(model, optimizer, micro_batches)
