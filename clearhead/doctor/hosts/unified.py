"""One stack for two objectives, a language model with a window or a masked one: ALiBi, SDPA, parallel blocks.

`Config.causal` decides which. There are no position embeddings: every head has a slope, and a key `d` tokens away
loses `slope * d` of its score. Attention and feed-forward read the same normalised input and are added together. The
attention runs through scaled_dot_product_attention; `fused=False` writes it out, for weights one can look at.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD = 0
IGNORE = -100
WARMUP, DECAY_FROM, TOTAL = 20, 160, 200
LEARNING_RATE = 1e-3
CLIP = 1.0

Layers = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Config:
    vocab: int = 61
    d_model: int = 24
    heads: int = 3
    layers: int = 2
    dropout: float = 0.1
    window: int | None = None  # how many tokens back a query looks, itself included; with `causal` only
    causal: bool = True


@dataclass
class Cache:
    """Keys and values of each layer, the last `window - 1` tokens of them, and how many tokens there were in all."""

    layers: Layers
    seen: int

    def take(self, rows: Tensor) -> "Cache":
        return Cache([(k[rows], v[rows]) for k, v in self.layers], self.seen)


def alibi_slopes(heads: int) -> Tensor:
    """The paper's: a geometric series; between powers of two, every second one of the next series fills up."""
    closest = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / closest) for i in range(closest)]
    more = [2.0 ** (-4.0 * (i + 1) / closest) for i in range(0, 2 * (heads - closest), 2)]
    return torch.tensor(slopes + more)


class LayerNorm(nn.Module):
    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        return self.gain * centred / torch.sqrt(variance + self.eps) + self.shift


class SelfAttention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.p = config.heads, config.dropout
        self.keep = None if config.window is None else config.window - 1
        self.proj = nn.ModuleDict({name: nn.Linear(config.d_model, config.d_model) for name in ("q", "k", "v", "out")})

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def written_out(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        scores = torch.einsum("bhsd,bhtd->bhst", q, k) / math.sqrt(q.size(-1)) + bias
        weights = F.dropout(scores.softmax(dim=-1), self.p, self.training)
        return torch.einsum("bhst,bhtd->bhsd", weights, v)

    def forward(
        self, x: Tensor, bias: Tensor, past: tuple[Tensor, Tensor] | None, fused: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = (self.split(self.proj[name](x)) for name in ("q", "k", "v"))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        if fused:
            p = self.p if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p)
        else:
            y = self.written_out(q, k, v, bias)
        y = self.proj["out"](y.transpose(1, 2).flatten(2))
        start = 0 if self.keep is None else max(0, k.size(2) - self.keep)
        return y, (k[:, :, start:], v[:, :, start:])


class Block(nn.Module):
    """Attention and feed-forward side by side."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm = LayerNorm(config.d_model)
        self.attention = SelfAttention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.d_model, 4 * config.d_model), nn.GELU(), nn.Linear(4 * config.d_model, config.d_model)
        )
        self.drop_attention, self.drop_mlp = nn.Dropout(config.dropout), nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, bias: Tensor, past: tuple[Tensor, Tensor] | None, fused: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = self.norm(x)
        attended, kept = self.attention(y, bias, past, fused)
        return x + self.drop_attention(attended) + self.drop_mlp(self.mlp(y)), kept


class Model(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.ModuleDict(
            {"token": nn.Embedding(config.vocab, config.d_model), "segment": nn.Embedding(2, config.d_model)}
        )
        self.embed_norm = LayerNorm(config.d_model)
        self.embed_drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.head = nn.ModuleDict(
            {
                "dense": nn.Linear(config.d_model, config.d_model),
                "norm": LayerNorm(config.d_model),
                "decoder": nn.Linear(config.d_model, config.vocab),
            }
        )
        self.slopes: Tensor
        self.register_buffer("slopes", alibi_slopes(config.heads), persistent=False)
        self.reset_parameters()
        self.head["decoder"].weight = self.embed["token"].weight

    def reset_parameters(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.trunc_normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for name, weight in self.named_parameters():
            if name.endswith(("proj.out.weight", "mlp.2.weight")):
                nn.init.trunc_normal_(weight, std=0.02 / math.sqrt(2 * self.config.layers))

    def bias(self, length: int, kept: int, real: Tensor | None, documents: Tensor | None, dtype: torch.dtype) -> Tensor:
        """(1 or B, H, S, T): minus slope times distance, and the least number where a query must not look.

        The keys are the last `kept + length` tokens, the queries the last `length`.
        """
        keys = torch.arange(kept + length, device=self.slopes.device)
        distance = keys[kept:, None] - keys[None, :]
        bias = (-distance.abs() * self.slopes[:, None, None]).to(dtype)[None]
        hidden = torch.zeros_like(distance, dtype=torch.bool)[None, None]
        if self.config.causal:
            hidden = hidden | (distance < 0)
            if self.config.window is not None:
                hidden = hidden | (distance >= self.config.window)
        if real is not None:
            hidden = hidden | ~real[:, None, None, :]
        if documents is not None:
            hidden = hidden | (documents[:, None, :, None] != documents[:, None, None, :])
        return bias.masked_fill(hidden, torch.finfo(dtype).min)

    def forward(
        self,
        tokens: Tensor,  # (B, S)
        real: Tensor | None = None,  # (B, S), without a cache only
        segments: Tensor | None = None,  # (B, S), 0 or 1
        documents: Tensor | None = None,  # (B, S), without a cache only
        cache: Cache | None = None,
        fused: bool = True,
    ) -> tuple[Tensor, Cache]:
        """Logits (B, S, V), and what the next tokens need to know of these."""
        segments = torch.zeros_like(tokens) if segments is None else segments
        x = self.embed["token"](tokens) + self.embed["segment"](segments)
        x = self.embed_drop(self.embed_norm(x))
        kept = cache.layers[0][0].size(2) if cache is not None else 0
        bias = self.bias(tokens.size(1), kept, real, documents, x.dtype)
        layers: Layers = []
        for i, block in enumerate(self.blocks):
            x, pair = block(x, bias, cache.layers[i] if cache is not None else None, fused)
            layers.append(pair)
        x = self.head["norm"](F.gelu(self.head["dense"](x)))
        seen = tokens.size(1) + (cache.seen if cache is not None else 0)
        return self.head["decoder"](x), Cache(layers, seen)

    @torch.no_grad()
    def continue_text(self, tokens: Tensor, count: int) -> Tensor:
        """Greedy, in evaluation mode; the mode is put back afterwards."""
        training = self.training
        self.eval()
        logits, cache = self(tokens)
        for step in range(count):
            tokens = torch.cat([tokens, logits[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
            if step < count - 1:
                logits, cache = self(tokens[:, -1:], cache=cache)
        self.train(training)
        return tokens


def next_token_loss(model: nn.Module, tokens: Tensor, reduction: str = "mean") -> Tensor:
    """A causal model's: padding is hidden, and not predicted."""
    logits, _ = model(tokens, real=tokens != PAD)
    labels = tokens[:, 1:].masked_fill(tokens[:, 1:] == PAD, IGNORE)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction=reduction)


def masked_token_loss(model: nn.Module, tokens: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """A masked model's: labels are IGNORE wherever there is nothing to restore."""
    logits, _ = model(tokens, real=tokens != PAD)
    chosen = labels != IGNORE
    return F.cross_entropy(logits[chosen], labels[chosen], reduction=reduction)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if any(parameter is known for known in decayed):
                continue  # tied
            matrix = isinstance(module, nn.Linear) and name == "weight"
            (decayed if matrix else plain).append(parameter)
    plain = [p for p in plain if not any(p is known for known in decayed)]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=LEARNING_RATE
    )


def factor(update: int) -> float:
    """Of the learning rate, for LambdaLR: up over WARMUP updates, level, and down to zero over the last ones."""
    if update < WARMUP:
        return (update + 1) / WARMUP
    if update < DECAY_FROM:
        return 1.0
    return max(0.0, (TOTAL - update) / (TOTAL - DECAY_FROM))


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[tuple[Tensor, ...]]) -> float:
    """One update from several batches: (tokens,) for a language model, (tokens, labels) for a masked one."""
    model.train()
    loss_of: Callable[..., Tensor] = masked_token_loss if len(batches[0]) == 2 else next_token_loss
    counts = [int((b[1] != IGNORE).sum() if len(b) == 2 else (b[0][:, 1:] != PAD).sum()) for b in batches]
    for parameter in model.parameters():
        parameter.grad = None
    mean = 0.0
    for batch in batches:
        loss = loss_of(model, *batch, reduction="sum") / sum(counts)
        loss.backward()
        mean += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    return mean
