"""An encoder-decoder of the Marian and BART kind, pre-norm: learned positions, float masks, past keys in dicts.

Masks are floats of shape (B, 1, S or 1, T) that are added to the scores: 0 for "look", the least finite number for "do
not". While decoding, `past` holds for each layer a dict: "self" the keys and values so far, "cross" those of the
encoder's output, computed once. The training step scales its loss, as one does in half precision.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, BOS, EOS = 1, 0, 2
EPSILON = 0.1
WARMUP_UPDATES, PEAK = 60, 5e-4
MAX_NORM = 0.5
LOSS_SCALE = 128.0

KeysValues = tuple[Tensor, Tensor]
Past = dict[int, dict[str, KeysValues]]


def padding_bias(real: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """(B, T), True at real tokens, to floats (B, 1, 1, T)."""
    if real is None:
        return None
    bias = torch.zeros(real.shape, dtype=dtype, device=real.device)
    return bias.masked_fill(~real, torch.finfo(dtype).min)[:, None, None, :]


def causal_bias(length: int, past_length: int, dtype: torch.dtype) -> Tensor:
    """(1, 1, S, past + S): query i stands at past + i."""
    rows = torch.arange(past_length, past_length + length).unsqueeze(1)
    columns = torch.arange(past_length + length).unsqueeze(0)
    bias = torch.zeros(length, past_length + length, dtype=dtype)
    return bias.masked_fill(columns > rows, torch.finfo(dtype).min)[None, None]


def combine(causal: Tensor, padding: Tensor | None) -> Tensor:
    """Both masks at once; a sum of two of the least numbers would not be finite."""
    return causal if padding is None else torch.minimum(causal, padding)


class MultiheadAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.dropout = num_heads, embed_dim // num_heads, dropout
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def shape(self, x: Tensor) -> Tensor:
        """(B, T, C) to (B, H, T, D)."""
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).transpose(1, 2)

    def keys_values(self, states: Tensor) -> KeysValues:
        return self.shape(self.k_proj(states)), self.shape(self.v_proj(states))

    def forward(self, x: Tensor, kv: KeysValues, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features (B, S, C) and weights (B, H, S, T)."""
        keys, values = kv
        queries = self.shape(self.q_proj(x) * self.scaling)
        scores = queries @ keys.transpose(-1, -2)
        if bias is not None:
            scores = scores + bias
        weights = torch.softmax(scores, dim=-1)
        mixed = F.dropout(weights, self.dropout, self.training) @ values
        mixed = mixed.permute(0, 2, 1, 3).flatten(2)
        return self.out_proj(mixed), weights


class Layer(nn.Module):
    """Self-attention, in the decoder cross-attention, and a feed-forward network, each behind a norm of its own."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float, cross: bool) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(embed_dim, num_heads, dropout)
        self.self_attn_layer_norm = nn.LayerNorm(embed_dim)
        self.cross = cross
        if cross:
            self.encoder_attn = MultiheadAttention(embed_dim, num_heads, dropout)
            self.encoder_attn_layer_norm = nn.LayerNorm(embed_dim)
        self.fc1 = nn.Linear(embed_dim, 4 * embed_dim)
        self.fc2 = nn.Linear(4 * embed_dim, embed_dim)
        self.final_layer_norm = nn.LayerNorm(embed_dim)
        self.dropout = dropout

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, p=self.dropout, training=self.training)

    def forward(
        self,
        x: Tensor,
        bias: Tensor | None,
        memory: Tensor | None = None,
        memory_bias: Tensor | None = None,
        past: dict[str, KeysValues] | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, KeysValues]]:
        present: dict[str, KeysValues] = {}
        residual = x
        x = self.self_attn_layer_norm(x)
        keys, values = self.self_attn.keys_values(x)
        if past is not None:
            keys = torch.cat([past["self"][0], keys], dim=2)
            values = torch.cat([past["self"][1], values], dim=2)
        present["self"] = (keys, values)
        x, weights = self.self_attn(x, (keys, values), bias)
        x = residual + self.drop(x)
        if self.cross and memory is not None:
            residual = x
            x = self.encoder_attn_layer_norm(x)
            present["cross"] = self.encoder_attn.keys_values(memory) if past is None else past["cross"]
            x, weights = self.encoder_attn(x, present["cross"], memory_bias)
            x = residual + self.drop(x)
        residual = x
        x = self.final_layer_norm(x)
        x = self.drop(F.gelu(self.fc1(x)))
        x = residual + self.drop(self.fc2(x))
        return x, weights, present


class Seq2Seq(nn.Module):
    def __init__(
        self, vocab_size: int, d_model: int, num_heads: int, num_layers: int, max_positions: int, dropout: float
    ) -> None:
        super().__init__()
        self.max_positions, self.dropout = max_positions, dropout
        self.embed_scale = math.sqrt(d_model)
        self.shared = nn.Embedding(vocab_size, d_model, padding_idx=PAD)
        self.encoder_positions = nn.Embedding(max_positions, d_model)
        self.decoder_positions = nn.Embedding(max_positions, d_model)
        self.encoder = nn.ModuleList([Layer(d_model, num_heads, dropout, cross=False) for _ in range(num_layers)])
        self.decoder = nn.ModuleList([Layer(d_model, num_heads, dropout, cross=True) for _ in range(num_layers)])
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.lm_head = nn.Linear(d_model, vocab_size)
        self.apply(self.init_weights)
        nn.init.normal_(self.shared.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.shared.weight[PAD].zero_()
        self.lm_head.weight = self.shared.weight

    @staticmethod
    def init_weights(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def embed(self, tokens: Tensor, table: nn.Embedding, start: int = 0) -> Tensor:
        stop = start + tokens.size(1)
        if stop > self.max_positions:
            raise ValueError(f"{stop} positions, the table has {self.max_positions}")
        x = self.shared(tokens) * self.embed_scale + table(torch.arange(start, stop, device=tokens.device))
        return F.dropout(x, p=self.dropout, training=self.training)

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The memory (B, T, C) and the bias that hides its padding."""
        x = self.embed(source, self.encoder_positions)
        bias = padding_bias(source_real, x.dtype)
        for layer in self.encoder:
            x, _, _ = layer(x, bias)
        return self.encoder_norm(x), bias

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        memory_bias: Tensor | None,
        target_real: Tensor | None = None,
        past: Past | None = None,
    ) -> dict[str, Any]:
        """Logits of the tokens given, the last layer's cross-attention, and what the next step needs."""
        past_length = past[0]["self"][0].size(2) if past else 0
        x = self.embed(target, self.decoder_positions, start=past_length)
        bias = combine(causal_bias(target.size(1), past_length, x.dtype), padding_bias(target_real, x.dtype))
        present: Past = {}
        weights = x.new_empty(0)
        for number, layer in enumerate(self.decoder):
            x, weights, present[number] = layer(x, bias, memory, memory_bias, past[number] if past else None)
        return {"logits": self.lm_head(self.decoder_norm(x)), "cross": weights, "past": present}

    def forward(
        self, source: Tensor, target: Tensor, source_real: Tensor | None = None, target_real: Tensor | None = None
    ) -> dict[str, Any]:
        memory, memory_bias = self.encode(source, source_real)
        return self.decode(target, memory, memory_bias, target_real)

    @torch.no_grad()
    def generate(
        self, source: Tensor, start: Tensor, steps: int, source_real: Tensor | None = None, eos: int | None = EOS
    ) -> Tensor:
        """Greedy search for a batch; a row that has met `eos` goes on with padding."""
        memory, memory_bias = self.encode(source, source_real)
        tokens, past = start, None
        finished = torch.zeros(source.size(0), dtype=torch.bool, device=source.device)
        for _ in range(steps):
            out = self.decode(tokens if past is None else tokens[:, -1:], memory, memory_bias, past=past)
            past = out["past"]
            best = out["logits"][:, -1].argmax(dim=-1)
            best = torch.where(finished, torch.full_like(best, PAD), best)
            if eos is not None:
                finished = finished | (best == eos)
            tokens = torch.cat([tokens, best.unsqueeze(1)], dim=1)
        return tokens


def reorder_past(past: Past, rows: Tensor) -> Past:
    """The rows of a beam search, dealt anew."""
    return {
        number: {name: (keys[rows], values[rows]) for name, (keys, values) in layer.items()}
        for number, layer in past.items()
    }


def smoothed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of -log p under labels that give EPSILON of their weight to all tokens alike; padding counts nothing."""
    log_probs = F.log_softmax(logits, dim=-1)
    nll = -log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    uniform = -log_probs.mean(dim=-1)
    losses = (1.0 - EPSILON) * nll + EPSILON * uniform
    return losses.masked_fill(labels == PAD, 0.0).sum()


def batch_loss(model: nn.Module, source: Tensor, target: Tensor, mean: bool = True) -> Tensor:
    """The decoder reads the target without its last token and predicts it without its first."""
    inputs, labels = target[:, :-1], target[:, 1:]
    out = model(source, inputs, source != PAD, inputs != PAD)
    total = smoothed_loss(out["logits"], labels)
    return total / (labels != PAD).sum().clamp(min=1) if mean else total


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    names = dict(model.named_parameters())
    plain = {name for name in names if name.endswith("bias") or "norm" in name}
    return torch.optim.AdamW(
        [
            {"params": [p for name, p in names.items() if name not in plain], "weight_decay": 0.01},
            {"params": [p for name, p in names.items() if name in plain], "weight_decay": 0.0},
        ],
        lr=PEAK,
        betas=(0.9, 0.98),
    )


def inverse_sqrt(update: int) -> float:
    """Linear to PEAK at update WARMUP_UPDATES - 1 (the first update is 0), then with the inverse root."""
    number = update + 1
    return PEAK * min(number / WARMUP_UPDATES, math.sqrt(WARMUP_UPDATES / number))


class Trainer:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def backward(self, pairs: list[tuple[Tensor, Tensor]]) -> float:
        """Add up the scaled gradients of all pairs, each target token with the same weight."""
        tokens = sum(int((target[:, 1:] != PAD).sum()) for _, target in pairs)
        total = 0.0
        for source, target in pairs:
            loss = batch_loss(self.model, source, target, mean=False) / tokens
            (loss * LOSS_SCALE).backward()
            total += float(loss.detach())
        return total

    def unscale(self) -> None:
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(LOSS_SCALE)

    def step(self, pairs: list[tuple[Tensor, Tensor]]) -> float:
        self.model.train()
        total = self.backward(pairs)
        self.unscale()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total
