"""A GPT without layers: parameters in a dictionary, and pure functions that take them.

Rotary positions, RMS normalisation, SwiGLU, fewer key heads than query heads, every product an einsum. Letters:
b batch, s query, t key, d width, g key head, r query head of a key head, k head width, f inner width, v vocabulary.
The cache is two tensors (layers, b, t, g, k) that go in and come out. The module at the end only holds the dictionary.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, einsum, nn

PAD = 0
PEAK, WARMUP, STEPS = 3e-3, 25, 400
CLIP = 0.5

Params = Mapping[str, Tensor] | nn.ParameterDict


class Shape(NamedTuple):
    vocab: int = 61
    d: int = 48
    g: int = 3
    r: int = 2
    layers: int = 2
    dropout: float = 0.1

    @property
    def k(self) -> int:
        return self.d // (self.g * self.r)


@dataclass
class Output:
    logits: Tensor  # (b, s, v)
    keys: Tensor  # (layers, b, t, g, k), rotated
    values: Tensor  # (layers, b, t, g, k)


def init_params(shape: Shape) -> dict[str, Tensor]:
    """Normal with std 0.02; what writes into the residual stream is smaller the more layers do so."""
    d, f, g, r, k = shape.d, 8 * shape.d // 3, shape.g, shape.r, shape.k
    small = 0.02 / math.sqrt(2 * shape.layers)
    params = {"wte": torch.randn(shape.vocab, d) * 0.02, "norm_f": torch.ones(d)}
    for i in range(shape.layers):
        params |= {
            f"h{i}_norm_1": torch.ones(d),
            f"h{i}_wq": torch.randn(d, g, r, k) * 0.02,
            f"h{i}_wk": torch.randn(d, g, k) * 0.02,
            f"h{i}_wv": torch.randn(d, g, k) * 0.02,
            f"h{i}_wo": torch.randn(g, r, k, d) * small,
            f"h{i}_norm_2": torch.ones(d),
            f"h{i}_gate": torch.randn(d, f) * 0.02,
            f"h{i}_up": torch.randn(d, f) * 0.02,
            f"h{i}_down": torch.randn(f, d) * small,
        }
    return params


def rms_norm(x: Tensor, gain: Tensor, eps: float = 1e-6) -> Tensor:
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) * gain


def rope(x: Tensor, positions: Tensor) -> Tensor:
    """(b, s, ..., k) at positions (b, s): features 2i and 2i+1 turn together."""
    k = x.size(-1)
    theta = 10000.0 ** (-torch.arange(0, k, 2, dtype=torch.float64) / k)
    angle = positions.to(torch.float64)[..., None] * theta  # (b, s, k/2)
    angle = angle.view(*positions.shape, *[1] * (x.dim() - 3), k // 2)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def may_look(
    queries: int, past: int, real: Tensor | None, documents: Tensor | None
) -> Tensor:  # (s, t) or (b, s, t), True where query s may look at key t
    s = torch.arange(past, past + queries)
    t = torch.arange(past + queries)
    look = s[:, None] >= t[None, :]
    if documents is not None:
        look = look & (documents[:, :, None] == documents[:, None, :])
    if real is not None:
        look = look & real[:, None, :]
    return look


def attention(q: Tensor, k: Tensor, v: Tensor, look: Tensor, dropout: float) -> Tensor:
    """(b, s, g, r, k), (b, t, g, k), (b, t, g, k) to (b, s, g, r, k)."""
    scores = einsum("bsgrk,btgk->bgrst", q, k) / math.sqrt(q.size(-1))
    look = look[:, None, None] if look.dim() == 3 else look
    scores = scores.masked_fill(~look, torch.finfo(scores.dtype).min)
    weights = F.dropout(scores.softmax(dim=-1), dropout)
    return einsum("bgrst,btgk->bsgrk", weights, v)


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    inner = F.silu(einsum("bsd,df->bsf", x, gate)) * einsum("bsd,df->bsf", x, up)
    return einsum("bsf,fd->bsd", inner, down)


def block(
    params: Params, i: int, x: Tensor, positions: Tensor, look: Tensor,
    past: tuple[Tensor, Tensor] | None, dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Layer i; `past` are its keys and values so far. Returns x and all keys and values, the new ones included."""
    h = rms_norm(x, params[f"h{i}_norm_1"])
    q = rope(einsum("bsd,dgrk->bsgrk", h, params[f"h{i}_wq"]), positions)
    k = rope(einsum("bsd,dgk->bsgk", h, params[f"h{i}_wk"]), positions)
    v = einsum("bsd,dgk->bsgk", h, params[f"h{i}_wv"])
    if past is not None:
        k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
    mixed = attention(q, k, v, look, dropout)
    x = x + F.dropout(einsum("bsgrk,grkd->bsd", mixed, params[f"h{i}_wo"]), dropout)
    h = rms_norm(x, params[f"h{i}_norm_2"])
    h = swiglu(h, params[f"h{i}_gate"], params[f"h{i}_up"], params[f"h{i}_down"])
    return x + F.dropout(h, dropout), k, v


def gpt(
    params: Params,
    shape: Shape,
    tokens: Tensor,  # (b, s)
    cache: tuple[Tensor, Tensor] | None = None,  # keys and values of earlier tokens
    real: Tensor | None = None,  # (b, past + s), True at real tokens
    documents: Tensor | None = None,  # (b, s), the number of each token's document
    dropout: float = 0.0,
) -> Output:
    b, s = tokens.shape
    past = 0 if cache is None else cache[0].size(2)
    if real is None:
        positions = torch.arange(past, past + s).expand(b, s)
    else:
        positions = (real.long().cumsum(dim=1) - 1).clamp(min=0)[:, past:]
    look = may_look(s, past, real, documents)
    x = F.dropout(params["wte"][tokens], dropout)
    keys, values = [], []
    for i in range(shape.layers):
        layer_past = None if cache is None else (cache[0][i], cache[1][i])
        x, k, v = block(params, i, x, positions, look, layer_past, dropout)
        keys.append(k)
        values.append(v)
    logits = einsum("bsd,vd->bsv", rms_norm(x, params["norm_f"]), params["wte"])
    return Output(logits, torch.stack(keys), torch.stack(values))


def pick(logits: Tensor, temperature: float) -> Tensor:
    """(b, v) to (b, 1)."""
    if temperature == 0.0:
        return logits.argmax(dim=-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(dim=-1), 1)


@torch.no_grad()
def generate(
    params: Params, shape: Shape, tokens: Tensor, count: int, real: Tensor | None = None, temperature: float = 0.0
) -> Tensor:
    """(b, s) to (b, s + count)."""
    out = gpt(params, shape, tokens, real=real)
    for n in range(count):
        new = pick(out.logits[:, -1], temperature)
        tokens = torch.cat([tokens, new], dim=1)
        if real is not None:
            real = torch.cat([real, torch.ones_like(new, dtype=torch.bool)], dim=1)
        if n < count - 1:
            out = gpt(params, shape, new, (out.keys, out.values), real)
    return tokens


def reorder(cache: tuple[Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
    return cache[0][:, rows], cache[1][:, rows]


def loss(model: "GPT", tokens: Tensor) -> tuple[Tensor, int]:
    """The summed cross-entropy of each next token that is no padding, and how many these are."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    logits = model(inputs, real=inputs != PAD).logits
    nll = F.cross_entropy(einsum("bsv->bvs", logits), targets, reduction="none")
    keep = targets != PAD
    return (nll * keep).sum(), int(keep.sum())


def mean_loss(model: "GPT", tokens: Tensor) -> Tensor:
    total, count = loss(model, tokens)
    return total / count


def learning_rate(step: int) -> float:
    """A linear rise over WARMUP steps, then half a cosine down to a tenth of the peak."""
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    done = min(1.0, (step + 1 - WARMUP) / (STEPS - WARMUP))
    return PEAK * (0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * done)))


def make_optimizer(model: "GPT") -> torch.optim.Optimizer:
    gains = [p for name, p in model.params.items() if "norm" in name]
    others = [p for name, p in model.params.items() if "norm" not in name]
    groups = [{"params": others, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95))


def step(model: "GPT", optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> float:
    """One update: gradients of summed losses add up, then all are divided by the number of tokens."""
    optimizer.zero_grad(set_to_none=True)
    total, count = 0.0, 0
    for batch in batches:
        batch_loss, batch_count = loss(model, batch)
        batch_loss.backward()
        total += batch_loss.item()
        count += batch_count
    with torch.no_grad():
        for p in model.params.values():
            if p.grad is not None:
                p.grad /= count
    torch.nn.utils.clip_grad_norm_(model.params.values(), CLIP)
    optimizer.step()
    return total / count


class GPT(nn.Module):
    """The dictionary, as a module: what moves, saves and counts parameters finds them here."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.params = nn.ParameterDict(init_params(shape))

    def forward(
        self, tokens: Tensor, cache: tuple[Tensor, Tensor] | None = None, real: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Output:  # fmt: skip
        dropout = self.shape.dropout if self.training else 0.0
        return gpt(self.params, self.shape, tokens, cache, real, documents, dropout)
