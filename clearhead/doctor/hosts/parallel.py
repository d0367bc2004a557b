"""A functional decoder in the style of GPT-NeoX: parallel blocks, partial rotation, grouped queries, a ring as cache.

The parameters of all layers are stacked, so that layer i reads row i of each tensor in one flat dictionary; everything
else is a function of them. Attention and feed-forward read the same stream and are added to it together. Each token
sees the last `window` tokens, itself included, so the cache is a ring of that many places and never grows.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD = 0
PEAK, FLOOR = 4e-3, 4e-4
WARM, STABLE, TOTAL = 40, 300, 400
MAX_GRAD = 1.0
DECAY = 0.1


@dataclass(frozen=True)
class Shape:
    vocab: int = 61
    width: int = 48
    heads: int = 6
    kv_heads: int = 3
    layers: int = 2
    window: int = 7
    rotary_fraction: float = 0.5
    base: float = 10000.0
    dropout: float = 0.1

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def rotary_width(self) -> int:
        return 2 * int(self.head_width * self.rotary_fraction / 2)


class Ring(NamedTuple):
    """The last keys and values of every layer, and the position of the token in each place, -1 where there is none."""

    key: Tensor  # (L, B, window, G, d)
    value: Tensor  # (L, B, window, G, d)
    position: Tensor  # (B, window)
    document: Tensor  # (B, window)
    read: Tensor  # (B,), how many tokens have gone by

    @classmethod
    def empty(cls, shape: Shape, rows: int, dtype: torch.dtype) -> "Ring":
        room = torch.zeros(shape.layers, rows, shape.window, shape.kv_heads, shape.head_width, dtype=dtype)
        nowhere = torch.full((rows, shape.window), -1)
        return cls(room, room.clone(), nowhere, torch.zeros_like(nowhere), torch.zeros(rows, dtype=torch.long))

    def rows(self, chosen: Tensor) -> "Ring":
        return Ring(
            self.key[:, chosen], self.value[:, chosen], self.position[chosen], self.document[chosen], self.read[chosen]
        )


def init_params(shape: Shape) -> dict[str, Tensor]:
    width, inner, layers = shape.width, 4 * shape.width, shape.layers
    keys = shape.kv_heads * shape.head_width

    def matrix(*size: int, std: float = 0.02) -> Tensor:
        return torch.randn(*size) * std

    out = 0.02 / math.sqrt(2 * layers)
    return {
        "embed": matrix(shape.vocab, width),
        "ln1_gain": torch.ones(layers, width),
        "ln1_shift": torch.zeros(layers, width),
        "ln2_gain": torch.ones(layers, width),
        "ln2_shift": torch.zeros(layers, width),
        "wq": matrix(layers, width, width),
        "wk": matrix(layers, width, keys),
        "wv": matrix(layers, width, keys),
        "wo": matrix(layers, width, width, std=out),
        "up": matrix(layers, width, inner),
        "up_shift": torch.zeros(layers, inner),
        "down": matrix(layers, inner, width, std=out),
        "down_shift": torch.zeros(layers, width),
        "final_gain": torch.ones(width),
        "final_shift": torch.zeros(width),
        "unembed": matrix(width, shape.vocab),
    }


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-5) * gain + shift


def rotary_angles(position: Tensor, shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (B, S, 1, rotary_width): both halves of the features turn by the same angles."""
    steps = torch.arange(0, shape.rotary_width, 2, dtype=torch.float64) / shape.rotary_width
    angles = position.double().unsqueeze(-1) * shape.base**-steps
    angles = torch.cat([angles, angles], dim=-1).unsqueeze(2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The first features of each head turn, the others stay: (B, S, H, d)."""
    turned, kept = x[..., : cos.size(-1)], x[..., cos.size(-1) :]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([turned, kept], dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, p: float, training: bool) -> Tensor:
    """q (B, S, H, d), k and v (B, T, G, d), visible (B, S, T); query head h reads key head h // (H / G)."""
    rows, queries, heads, d = q.shape
    grouped = q.reshape(rows, queries, k.size(2), heads // k.size(2), d)
    scores = torch.einsum("bsgrd,btgd->bgrst", grouped, k) / math.sqrt(d)
    scores = scores.masked_fill(~visible[:, None, None], torch.finfo(scores.dtype).min)
    weights = F.dropout(scores.softmax(dim=-1), p, training)
    return torch.einsum("bgrst,btgd->bsgrd", weights, v).reshape(rows, queries, heads * d)


def visible_keys(
    query: Tensor, key: Tensor, query_document: Tensor, key_document: Tensor, window: int, real: Tensor
) -> Tensor:
    """(B, S, T): keys that exist, of the same document, not later than the query and within the window."""
    distance = query[:, :, None] - key[:, None, :]
    near = (distance >= 0) & (distance < window)
    return near & (query_document[:, :, None] == key_document[:, None, :]) & real[:, None, :]


def into_ring(old: Tensor, new: Tensor, place: Tensor) -> Tensor:
    """Put (B, S, ...) into its places of (B, window, ...); what is put behind the last place is thrown away."""
    room = torch.cat([old, old[:, :1]], dim=1)
    index = place.view(*place.shape, *[1] * (new.dim() - 2)).expand_as(new)
    return room.scatter(1, index, new)[:, :-1]


def apply(
    params: nn.ParameterDict,
    shape: Shape,
    tokens: Tensor,  # (B, S)
    real: Tensor | None = None,
    documents: Tensor | None = None,
    ring: Ring | None = None,
    training: bool = False,
) -> tuple[Tensor, Ring]:
    """The logits (B, S, V) and the ring after these tokens."""
    p = shape.dropout
    x = F.dropout(params["embed"][tokens], p, training)
    old = ring if ring is not None else Ring.empty(shape, tokens.size(0), x.dtype)
    real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
    document = torch.zeros_like(tokens) if documents is None else documents
    position = old.read[:, None] + real.long().cumsum(1) - 1  # padding does not count
    position = position.masked_fill(~real, -1)
    latest = position.max(dim=1, keepdim=True).values
    kept = real & (position > latest - shape.window)
    place = torch.where(kept, position % shape.window, shape.window)
    seen = torch.cat([old.position, position], dim=1)
    visible = visible_keys(
        position, seen, document, torch.cat([old.document, document], dim=1), shape.window, seen >= 0
    )
    cos, sin = rotary_angles(position, shape, x.dtype)
    keys, values = [], []
    for i in range(shape.layers):
        h = layer_norm(x, params["ln1_gain"][i], params["ln1_shift"][i])
        q = (h @ params["wq"][i]).view(*tokens.shape, shape.heads, shape.head_width)
        k = (h @ params["wk"][i]).view(*tokens.shape, shape.kv_heads, shape.head_width)
        v = (h @ params["wv"][i]).view(*tokens.shape, shape.kv_heads, shape.head_width)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        all_k, all_v = torch.cat([old.key[i], k], dim=1), torch.cat([old.value[i], v], dim=1)
        mixed = attend(q, all_k, all_v, visible, p, training)
        h = layer_norm(x, params["ln2_gain"][i], params["ln2_shift"][i])
        hidden = F.gelu(h @ params["up"][i] + params["up_shift"][i]) @ params["down"][i] + params["down_shift"][i]
        x = x + F.dropout(mixed @ params["wo"][i], p, training) + F.dropout(hidden, p, training)
        keys.append(into_ring(old.key[i], k, place))
        values.append(into_ring(old.value[i], v, place))
    x = layer_norm(x, params["final_gain"], params["final_shift"])
    now = Ring(
        torch.stack(keys),
        torch.stack(values),
        into_ring(old.position, position, place),
        into_ring(old.document, document, place),
        old.read + real.sum(dim=1),
    )
    return x @ params["unembed"], now


class ParallelLM(nn.Module):
    """The parameters, and the mode, for those who want a module."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.params = nn.ParameterDict(init_params(shape))

    def forward(
        self, tokens: Tensor, real: Tensor | None = None, documents: Tensor | None = None, ring: Ring | None = None
    ) -> tuple[Tensor, Ring]:
        return apply(self.params, self.shape, tokens, real, documents, ring, self.training)


@torch.no_grad()
def generate(model: ParallelLM, prompt: Tensor, count: int, real: Tensor | None = None) -> Tensor:
    """Greedy; prompts of different lengths are padded on the left."""
    tokens = prompt
    logits, ring = apply(model.params, model.shape, prompt, real)
    for step in range(count):
        chosen = logits[:, -1].argmax(dim=-1)
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
        if step + 1 < count:
            logits, ring = apply(model.params, model.shape, chosen[:, None], ring=ring)
    return tokens


def summed_loss(model: ParallelLM, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over all tokens that have to be predicted, and how many there are."""
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    logits, _ = model(inputs, inputs != PAD)
    counts = labels != PAD
    picked = logits.gather(2, labels[:, :, None]).squeeze(2)
    losses = torch.logsumexp(logits, dim=-1) - picked
    return (losses * counts).sum(), counts.sum()


def mean_loss(model: ParallelLM, tokens: Tensor) -> Tensor:
    total, count = summed_loss(model, tokens)
    return total / count


def make_optimizer(model: ParallelLM) -> torch.optim.Optimizer:
    """Gains and shifts are stacked to matrices, so they are told by their names."""
    vectors = [p for name, p in model.params.items() if name.endswith(("_gain", "_shift"))]
    matrices = [p for name, p in model.params.items() if not name.endswith(("_gain", "_shift"))]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95))


def learning_rate(step: int) -> float:
    """Warm up, stay, come down in a straight line."""
    if step < WARM:
        return PEAK * (step + 1) / WARM
    if step < STABLE:
        return PEAK
    done = min(1.0, (step - STABLE) / (TOTAL - STABLE))
    return PEAK + (FLOOR - PEAK) * done


def update(model: ParallelLM, optimizer: torch.optim.Optimizer, micro_batches: list[Tensor]) -> float:
    """One step down the mean over all tokens of all micro-batches."""
    model.train()
    params = list(model.params.values())
    grads = [torch.zeros_like(p) for p in params]
    total, count = 0.0, 0
    for tokens in micro_batches:
        loss, tokens_here = summed_loss(model, tokens)
        for held, grad in zip(grads, torch.autograd.grad(loss, params), strict=True):
            held += grad
        total, count = total + loss.item(), count + int(tokens_here)
    grads = [grad / count for grad in grads]
    norm = torch.stack([grad.norm() for grad in grads]).norm()
    shrink = (MAX_GRAD / (norm + 1e-6)).clamp(max=1.0)
    for p, grad in zip(params, grads, strict=True):
        p.grad = grad * shrink
    optimizer.step()
    optimizer.zero_grad()
    return total / count
