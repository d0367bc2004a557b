"""A post-norm stack in the style of fairseq: sequence first, heads folded into the batch, masks that are added.

The same layers are a masked language model, where every token sees every other, and a prefix language model, where the
first tokens see each other and the rest goes from left to right. Padding is found by its id; positions are learned,
count real tokens only and begin behind the padding's own row. Everything inside is (T, B, C).
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD = 1
PEAK_LR, END_LR = 1e-3, 1e-5
WARMUP_UPDATES, MAX_UPDATE = 50, 500
CLIP_NORM = 2.0
WEIGHT_DECAY = 0.01

Incremental = dict[str, Any]


def hidden_value(dtype: torch.dtype) -> float:
    """Two of these may be added without running out of numbers."""
    return torch.finfo(dtype).min / 2


def make_positions(tokens: Tensor, read: Tensor | None = None) -> Tensor:
    """PAD + 1, PAD + 2, ... for real tokens and PAD for padding; `read` real tokens have gone before in each row."""
    real = tokens.ne(PAD).long()
    counted = real.cumsum(dim=1)
    if read is not None:
        counted = counted + read.unsqueeze(1)
    return counted * real + PAD


class FoldedDropout(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, p=self.p, training=self.training) if self.p > 0 else x


class MultiheadAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.dropout_module = FoldedDropout(dropout)

    def fold(self, x: Tensor) -> Tensor:
        """(T, B, C) to (B * H, T, d)."""
        length, bsz, _ = x.size()
        return x.contiguous().view(length, bsz * self.num_heads, self.head_dim).transpose(0, 1)

    def forward(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor, saved: dict[str, Tensor] | None
    ) -> Tensor:
        """`attn_mask` is (T, S), `key_padding_mask` (B, S), both added; `saved` is read and replaced."""
        tgt_len, bsz, embed_dim = x.size()
        q = self.fold(self.q_proj(x) * self.scaling)
        k, v = self.fold(self.k_proj(x)), self.fold(self.v_proj(x))
        if saved is not None:
            if "prev_key" in saved:
                prev_key = saved["prev_key"].view(bsz * self.num_heads, -1, self.head_dim)
                prev_value = saved["prev_value"].view(bsz * self.num_heads, -1, self.head_dim)
                k, v = torch.cat([prev_key, k], dim=1), torch.cat([prev_value, v], dim=1)
            saved["prev_key"] = k.view(bsz, self.num_heads, -1, self.head_dim)
            saved["prev_value"] = v.view(bsz, self.num_heads, -1, self.head_dim)
        src_len = k.size(1)
        attn_weights = torch.bmm(q, k.transpose(1, 2))  # (B * H, T, S)
        if attn_mask is not None:
            attn_weights = attn_weights + attn_mask.unsqueeze(0)
        attn_weights = attn_weights.view(bsz, self.num_heads, tgt_len, src_len)
        attn_weights = attn_weights + key_padding_mask[:, None, None, :]
        attn_weights = attn_weights.view(bsz * self.num_heads, tgt_len, src_len)
        attn_probs = self.dropout_module(F.softmax(attn_weights, dim=-1))
        attn = torch.bmm(attn_probs, v)  # (B * H, T, d)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        return self.out_proj(attn)


class SentenceLayer(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(embed_dim, num_heads, dropout)
        self.self_attn_layer_norm = nn.LayerNorm(embed_dim)
        self.fc1 = nn.Linear(embed_dim, 4 * embed_dim)
        self.fc2 = nn.Linear(4 * embed_dim, embed_dim)
        self.final_layer_norm = nn.LayerNorm(embed_dim)
        self.dropout_module = FoldedDropout(dropout)
        self.activation_dropout_module = FoldedDropout(dropout)

    def forward(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor, saved: dict[str, Tensor] | None
    ) -> Tensor:
        residual = x
        x = self.self_attn(x, attn_mask, key_padding_mask, saved)
        x = self.dropout_module(x)
        x = self.self_attn_layer_norm(residual + x)
        residual = x
        x = F.gelu(self.fc1(x))
        x = self.activation_dropout_module(x)
        x = self.dropout_module(self.fc2(x))
        return self.final_layer_norm(residual + x)


class LMHead(nn.Module):
    def __init__(self, embed_dim: int, weight: Tensor) -> None:
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.layer_norm = nn.LayerNorm(embed_dim)
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(weight.size(0)))

    def forward(self, features: Tensor) -> Tensor:
        x = self.layer_norm(F.gelu(self.dense(features)))
        return F.linear(x, self.weight, self.bias)


class FoldedModel(nn.Module):
    def __init__(
        self, vocab: int, embed_dim: int, num_heads: int, num_layers: int, max_positions: int, dropout: float,
        prefix: int | None,
    ) -> None:  # fmt: skip
        """With `prefix` None every token sees every other one; otherwise the first `prefix` tokens do."""
        super().__init__()
        self.prefix, self.max_positions = prefix, max_positions
        self.embed_tokens = nn.Embedding(vocab, embed_dim, padding_idx=PAD)
        self.embed_positions = nn.Embedding(max_positions + PAD + 1, embed_dim, padding_idx=PAD)
        self.layernorm_embedding = nn.LayerNorm(embed_dim)
        self.dropout_module = FoldedDropout(dropout)
        self.layers = nn.ModuleList(SentenceLayer(embed_dim, num_heads, dropout) for _ in range(num_layers))
        self.lm_head = LMHead(embed_dim, self.embed_tokens.weight)
        self.apply(self.init_params)

    @staticmethod
    def init_params(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
            with torch.no_grad():
                module.weight[PAD].zero_()

    def attention_mask(self, tgt_len: int, src_len: int, dtype: torch.dtype) -> Tensor | None:
        """(T, S), to be added: zero at the past and inside the prefix."""
        if self.prefix is None:
            return None
        mask = torch.full((src_len, src_len), hidden_value(dtype), dtype=dtype).triu(1)
        mask[: self.prefix, : self.prefix] = 0.0
        return mask[src_len - tgt_len :]

    def extract_features(self, tokens: Tensor, incremental_state: Incremental | None = None) -> Tensor:
        """(B, T) to (B, T, C); `incremental_state` holds what was read before and is brought up to date."""
        real = tokens.ne(PAD)
        read = None
        if incremental_state:
            read = incremental_state["real"].sum(dim=1)
            real = torch.cat([incremental_state["real"], real], dim=1)
        if incremental_state is not None:
            incremental_state["real"] = real
        if int(real.sum(dim=1).max()) > self.max_positions:
            raise ValueError(f"more than {self.max_positions} tokens")
        x = self.embed_tokens(tokens) + self.embed_positions(make_positions(tokens, read))
        x = self.dropout_module(self.layernorm_embedding(x))
        x = x.transpose(0, 1)  # (T, B, C)
        attn_mask = self.attention_mask(tokens.size(1), real.size(1), x.dtype)
        key_padding_mask = torch.zeros(real.shape, dtype=x.dtype).masked_fill(~real, hidden_value(x.dtype))
        for number, layer in enumerate(self.layers):
            saved = None if incremental_state is None else incremental_state.setdefault(f"layer{number}", {})
            x = layer(x, attn_mask, key_padding_mask, saved)
        return x.transpose(0, 1)

    def forward(
        self, tokens: Tensor, incremental_state: Incremental | None = None, masked_tokens: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The logits, of masked tokens only where these are given, and the features they come from."""
        features = self.extract_features(tokens, incremental_state)
        chosen = features if masked_tokens is None else features[masked_tokens]
        return self.lm_head(chosen), {"features": features}

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int, never: tuple[int, ...] = (PAD,)) -> Tensor:
        """Greedy; the prompt is read at once, then one token at a time. Tokens in `never` are not said."""
        mode = self.training
        self.eval()
        state: Incremental = {}
        fed = tokens
        for _ in range(count):
            logits, _ = self(fed, state)
            logits = logits[:, -1].clone()
            for token in never:
                logits[:, token] = -math.inf
            fed = logits.argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, fed], dim=1)
        self.train(mode)
        return tokens


def reorder_incremental_state(state: Incremental, rows: Tensor) -> Incremental:
    return {
        name: {key: value.index_select(0, rows) for key, value in held.items()}
        if isinstance(held, dict)
        else held.index_select(0, rows)
        for name, held in state.items()
    }


def masked_lm_criterion(model: FoldedModel, tokens: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    """The summed loss of the labels that are not padding, and their number."""
    masked_tokens = labels.ne(PAD)
    logits, _ = model(tokens, masked_tokens=masked_tokens)
    loss = F.nll_loss(F.log_softmax(logits, dim=-1), labels[masked_tokens], reduction="sum")
    return loss, int(masked_tokens.sum())


def prefix_lm_criterion(model: FoldedModel, tokens: Tensor) -> tuple[Tensor, int]:
    """The same for the tokens behind the prefix, each predicted from those before it; the prefix sees itself."""
    logits, _ = model(tokens[:, :-1])
    labels = tokens[:, 1:].clone()
    labels[:, : (model.prefix or 1) - 1] = PAD
    lprobs = F.log_softmax(logits, dim=-1)
    loss = F.nll_loss(lprobs.reshape(-1, lprobs.size(-1)), labels.reshape(-1), ignore_index=PAD, reduction="sum")
    return loss, int(labels.ne(PAD).sum())


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.98), eps=1e-6)


def polynomial_decay(num_updates: int) -> float:
    if num_updates < WARMUP_UPDATES:
        return PEAK_LR * (num_updates + 1) / WARMUP_UPDATES
    if num_updates >= MAX_UPDATE:
        return END_LR
    remaining = 1 - (num_updates - WARMUP_UPDATES) / (MAX_UPDATE - WARMUP_UPDATES)
    return (PEAK_LR - END_LR) * remaining + END_LR


def train_step(model: FoldedModel, optimizer: torch.optim.Optimizer, samples: list[tuple[Tensor, ...]]) -> float:
    """Sums are accumulated; the gradient is divided by the number of labels, then clipped."""
    model.train()
    optimizer.zero_grad()
    criterion = prefix_lm_criterion if model.prefix is not None else masked_lm_criterion
    total, sample_size = 0.0, 0
    for sample in samples:
        loss, size = criterion(model, *sample)
        loss.backward()
        total, sample_size = total + loss.item(), sample_size + size
    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(1.0 / sample_size)
    nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    optimizer.step()
    return total / sample_size
