# mypy: disable-error-code="index,arg-type,assignment"
"""A stack after ModernBERT and the nanoGPT speedruns: functions over one flat stream of tokens, without padding.

A batch is unpadded into a stream (total, width), in which every token knows its document and its position there;
outputs are padded back at the end. Layers take turns: one sees its whole document, the next a window. Causal, the
stack is a language model, whose rows may be packed with several documents, whose cache is a list of streams as well
and whose prompts may have different lengths. Otherwise it is a masked language model with a window to both sides.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD = 0
PEAK, WARMUP, COOLDOWN, STEPS = 3e-3, 40, 120, 400
MAX_NORM, MAX_NORM_OF_SUM, DECAY = 1.0, 32.0, 0.05


@dataclass(frozen=True)
class Config:
    vocab: int = 61
    width: int = 24
    heads: int = 3
    layers: int = 2
    max_length: int = 512
    dropout: float = 0.1
    causal: bool = False
    window: int = 8  # causal: that many tokens, itself included; otherwise half of it to either side
    bases: tuple[float, float] = (10000.0, 1000.0)  # rotary bases: of global layers, of local ones


class Place(NamedTuple):
    index: Tensor  # (total,), in the flattened batch
    document: Tensor  # (total,), counted through the whole batch
    position: Tensor  # (total,), in the document
    cu_seqlens: Tensor  # (documents + 1,), where each document begins in the stream, and the end of the last


class Kept(NamedTuple):
    key: Tensor  # (kept, H, d), rotated
    value: Tensor
    document: Tensor  # (kept,)
    position: Tensor


class Cache(NamedTuple):
    read: Tensor  # (B,), tokens read in each row
    layers: list[Kept]


def unpad(real: Tensor, documents: Tensor | None = None, read: Tensor | None = None) -> Place:
    """Each row is a document, unless they are listed; `read` tokens (B,) of each row went before."""
    index = real.flatten().nonzero().squeeze(1)
    document, lengths = index // real.size(1), real.sum(dim=1)
    if documents is not None:
        number = documents.flatten()[index]
        first = (document.diff() != 0) | (number.diff() != 0)
        document = F.pad(first.long().cumsum(dim=0), (1, 0))
        lengths = document.bincount()
    cu_seqlens = F.pad(lengths.cumsum(dim=0), (1, 0))
    position = torch.arange(len(index), device=index.device) - cu_seqlens[document]
    if read is not None:
        position = position + read[document]
    return Place(index, document, position, cu_seqlens)


def pad_back(stream: Tensor, place: Place, rows: int, length: int) -> Tensor:
    out = stream.new_zeros(rows * length, stream.size(-1))  # padding stays zero
    return out.index_copy(0, place.index, stream).view(rows, length, -1)


def norm(x: Tensor, gain: Tensor) -> Tensor:
    return F.layer_norm(x, gain.shape, gain)


def rotary_table(config: Config, base: float) -> Tensor:
    """(2, max_length, d / 2), cosines and sines."""
    half = config.width // config.heads // 2
    speed = base ** -(torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(config.max_length, dtype=torch.float64)[:, None] * speed
    return torch.stack([angle.cos(), angle.sin()])


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """`x` is (total, H, d), `turn` (2, total, d / 2)."""
    cos, sin = turn[:, :, None].to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def band(distance: Tensor, causal: bool, window: int | None) -> Tensor:
    """Who may be seen at a distance, query minus key, in the same document."""
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if window is not None:
        reach = window - 1 if causal else window // 2
        seen = seen & (distance.abs() <= reach)
    return seen


def attend_stream(q: Tensor, kept: Kept, place: Place, causal: bool, window: int | None, p: float) -> Tensor:
    """All documents at once under one mask, (total, kept)."""
    seen = place.document[:, None] == kept.document[None, :]
    seen = seen & band(place.position[:, None] - kept.position[None, :], causal, window)
    scores = torch.einsum("qhd,khd->hqk", q, kept.key) / math.sqrt(q.size(-1))
    weights = F.softmax(scores.masked_fill(~seen, -math.inf), dim=-1)
    return torch.einsum("hqk,khd->qhd", F.dropout(weights, p), kept.value)


def attend_varlen(q: Tensor, kept: Kept, place: Place, causal: bool, window: int | None, p: float) -> Tensor:
    """The same one document after the other, without a past."""
    out = []
    for start, end in pairwise(place.cu_seqlens.tolist()):
        steps = torch.arange(end - start, device=q.device)
        seen = band(steps[:, None] - steps[None, :], causal, window)
        mine, key, value = (x[start:end].transpose(0, 1) for x in (q, kept.key, kept.value))
        out.append(F.scaled_dot_product_attention(mine, key, value, attn_mask=seen, dropout_p=p).transpose(0, 1))
    return torch.cat(out)


class Layer(nn.Module):  # only its weights
    def __init__(self, config: Config, number: int) -> None:
        super().__init__()
        width, head = config.width, config.width // config.heads
        out = 0.02 / math.sqrt(2 * config.layers)
        # the first layer reads embeddings that have just been normalised
        self.attn_gain = nn.Parameter(torch.ones(width)) if number > 0 else None
        self.qkv = nn.Parameter(torch.randn(3 * width, width) * 0.02)
        self.q_gain = nn.Parameter(torch.ones(head))
        self.k_gain = nn.Parameter(torch.ones(head))
        self.attn_out = nn.Parameter(torch.randn(width, width) * out)
        self.mlp_gain = nn.Parameter(torch.ones(width))
        self.mlp_in = nn.Parameter(torch.randn(4 * width, width) * 0.02)  # gate and value
        self.mlp_out = nn.Parameter(torch.randn(width, 2 * width) * out)


def attention(
    layer: Layer, x: Tensor, place: Place, turn: Tensor, config: Config, local: bool, past: Kept | None,
    varlen: bool, p: float,
) -> tuple[Tensor, Kept]:  # fmt: skip
    head = config.width // config.heads
    h = x if layer.attn_gain is None else norm(x, layer.attn_gain)
    q, k, v = F.linear(h, layer.qkv).view(-1, 3, config.heads, head).unbind(dim=1)
    q = rotate(F.rms_norm(q, (head,), layer.q_gain, 1e-6), turn)
    k = rotate(F.rms_norm(k, (head,), layer.k_gain, 1e-6), turn)
    now = Kept(k, v, place.document, place.position)
    if past is not None:
        now = Kept(*(torch.cat([old, new]) for old, new in zip(past, now, strict=True)))
    attend = attend_varlen if varlen else attend_stream
    mixed = attend(q, now, place, config.causal, config.window if local else None, p)
    return F.dropout(F.linear(mixed.flatten(1), layer.attn_out), p), now


def feed_forward(layer: Layer, x: Tensor, p: float) -> Tensor:
    gate, value = F.linear(norm(x, layer.mlp_gain), layer.mlp_in).chunk(2, dim=-1)
    return F.dropout(F.linear(F.dropout(F.gelu(gate) * value, p), layer.mlp_out), p)


def forget(kept: Kept, read: Tensor, window: int) -> Kept:
    near = kept.position > read[kept.document] - window  # what the next token's window reaches
    return Kept(*(held[near] for held in kept))


class Unpadded(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.randn(config.vocab, config.width) * 0.02)  # also the head
        self.embed_gain = nn.Parameter(torch.ones(config.width))
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.layers))
        self.final_gain = nn.Parameter(torch.ones(config.width))
        tables = torch.stack([rotary_table(config, base) for base in config.bases])
        self.register_buffer("tables", tables, persistent=False)  # (2, 2, max_length, d / 2)

    def head(self, hidden: Tensor) -> Tensor:
        return F.linear(norm(hidden, self.final_gain), self.embed)

    def forward(
        self, tokens: Tensor, real: Tensor | None = None, documents: Tensor | None = None, varlen: bool = False
    ) -> Tensor:
        """(B, S) to (B, S, V); `real` is True at real tokens, `documents` numbers each token's document."""
        place = unpad(torch.ones_like(tokens, dtype=torch.bool) if real is None else real, documents)
        hidden, _ = run(self, tokens, place, varlen=varlen)
        return pad_back(self.head(hidden), place, *tokens.shape)

    def cached(self, tokens: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        """The logits of further tokens (B, s), and the cache with them in it; the old one stays as it is."""
        place = unpad(torch.ones_like(tokens, dtype=torch.bool), read=None if cache is None else cache.read)
        hidden, cache = run(self, tokens, place, cache)
        return pad_back(self.head(hidden), place, *tokens.shape), cache


def run(
    model: Unpadded, tokens: Tensor, place: Place, cache: Cache | None = None, varlen: bool = False
) -> tuple[Tensor, Cache]:
    """The stream behind the last layer, before its norm, and the cache (of use where rows are documents)."""
    config = model.config
    p = config.dropout if model.training else 0.0
    if place.position.numel() and int(place.position.max()) >= config.max_length:
        raise ValueError(f"a document of more than {config.max_length} tokens")
    turns = model.tables[:, :, place.position]
    read = place.cu_seqlens.diff() + (0 if cache is None else cache.read)
    x = F.dropout(norm(F.embedding(tokens.flatten()[place.index], model.embed), model.embed_gain), p)
    layers = []
    for number, layer in enumerate(model.layers):
        local = number % 2 == 1
        past = None if cache is None else cache.layers[number]
        mixed, kept = attention(layer, x, place, turns[int(local)], config, local, past, varlen, p)
        x = x + mixed
        x = x + feed_forward(layer, x, p)
        layers.append(forget(kept, read, config.window) if local else kept)
    return x, Cache(read, layers)


def reorder(cache: Cache, rows: Tensor) -> Cache:
    """Row i is taken from `rows[i]`, which may occur several times, as in a beam search."""
    layers = []
    for kept in cache.layers:
        number, chosen = (kept.document == rows[:, None]).nonzero().unbind(dim=1)
        layers.append(Kept(kept.key[chosen], kept.value[chosen], number, kept.position[chosen]))
    return Cache(cache.read[rows], layers)


@torch.no_grad()
def generate(model: Unpadded, prompt: Tensor, count: int, real: Tensor | None = None) -> Tensor:
    """Greedy; prompts may be padded anywhere. Beyond the context its last tokens are read anew for each step."""
    mode = model.training
    model.eval()
    real = torch.ones_like(prompt, dtype=torch.bool) if real is None else real
    tokens, fed, fresh, cache = prompt, prompt, real, None
    for _ in range(count):
        if int(real.sum(dim=1).max()) > model.config.max_length:
            left = real.flip(1).cumsum(dim=1).flip(1)
            fed, fresh, cache = tokens, real & (left <= model.config.max_length), None
        place = unpad(fresh, read=None if cache is None else cache.read)
        hidden, cache = run(model, fed, place, cache)
        fed = model.head(hidden[place.cu_seqlens[1:] - 1]).argmax(dim=-1, keepdim=True)
        fresh = torch.ones_like(fed, dtype=torch.bool)
        tokens, real = torch.cat([tokens, fed], dim=1), torch.cat([real, fresh], dim=1)
    model.train(mode)
    return tokens


def causal_loss(model: Unpadded, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
    """The sum over all real tokens but the first of each document."""
    place = unpad(tokens != PAD, documents)
    hidden, _ = run(model, tokens, place)
    follows = place.document[1:] == place.document[:-1]
    labels = tokens.flatten()[place.index][1:]
    return F.cross_entropy(model.head(hidden[:-1][follows]), labels[follows], reduction="sum")


def masked_sum(model: Unpadded, tokens: Tensor, labels: Tensor) -> Tensor:
    """The sum over the tokens that have a label; elsewhere labels are PAD or negative. Only these see the head."""
    place = unpad(tokens != PAD)
    hidden, _ = run(model, tokens, place)
    labels = labels.flatten()[place.index]
    chosen = labels > PAD
    return F.cross_entropy(model.head(hidden[chosen]), labels[chosen], reduction="sum")


def label_count(tokens: Tensor, labels: Tensor) -> int:
    return int(((labels > PAD) & (tokens != PAD)).sum())


def masked_loss(model: Unpadded, tokens: Tensor, labels: Tensor) -> Tensor:
    return masked_sum(model, tokens, labels) / max(1, label_count(tokens, labels))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    gains = [p for p in model.parameters() if p.ndim < 2]  # these do not decay
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95), eps=1e-8)


def learning_rate(step: int) -> float:
    """A trapezoid: up, level, and down to zero."""
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    return PEAK * min(1.0, max(0.0, (STEPS - step) / COOLDOWN))


def update(model: Unpadded, optimizer: torch.optim.Optimizer, micro_batches: list[tuple[Tensor, ...]]) -> float:
    """One step: causal down the sum over all micro-batches, masked down the mean over all labels of all of them."""
    model.train()
    optimizer.zero_grad(set_to_none=True)
    causal, total = model.config.causal, 0.0
    size = 1 if causal else max(1, sum(label_count(*batch) for batch in micro_batches))
    for batch in micro_batches:
        loss = (causal_loss if causal else masked_sum)(model, *batch) / size
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM_OF_SUM if causal else MAX_NORM)
    optimizer.step()
    return total
