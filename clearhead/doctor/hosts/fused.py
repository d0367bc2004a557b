"""A decoder of the Llama family: fused projections, RMSNorm, complex rotary, grouped heads, a static cache.

Queries, keys and values come from one matrix, and so do the gate and the up projection of the feed-forward. The cache
is allocated once for `max_seq_len` tokens and written in place from `start_pos` on. `real` is True at tokens that are
not padding and covers everything that has been read so far, so prompts may be padded on the left.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD_ID = 0
PEAK_LR, MIN_LR = 3e-3, 3e-4
WARMUP_STEPS, MAX_STEPS = 50, 1000
GRAD_CLIP = 1.0
WEIGHT_DECAY = 0.1


@dataclass
class ModelArgs:
    vocab_size: int = 61
    dim: int = 48
    n_layers: int = 2
    n_heads: int = 6
    n_kv_heads: int = 3
    multiple_of: int = 8
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    max_seq_len: int = 640
    dropout: float = 0.1


def at_least_float(x: Tensor) -> Tensor:
    """Half precision goes up to float32; float32 and float64 stay as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        y = at_least_float(x)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.type_as(x) * self.weight


def precompute_freqs_cis(positions: Tensor, head_dim: int, theta: float) -> Tensor:
    """(B, S) positions to (B, S, 1, head_dim / 2) complex numbers of length one."""
    freqs = theta ** (-torch.arange(0, head_dim, 2, device=positions.device).double() / head_dim)
    angles = positions.double().unsqueeze(-1) * freqs
    return torch.polar(torch.ones_like(angles), angles).unsqueeze(2)


def apply_rotary_emb(x: Tensor, freqs_cis: Tensor) -> Tensor:
    """Neighbouring features are the two parts of one complex number, turned by the token's position."""
    y = at_least_float(x)
    y = torch.view_as_complex(y.reshape(*x.shape[:-1], -1, 2)) * freqs_cis.to(y.dtype.to_complex())
    return torch.view_as_real(y).flatten(-2).type_as(x)


def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
    """(B, T, KV, D) to (B, T, KV * n_rep, D): query heads 0..n_rep-1 read key head 0, and so on."""
    bsz, seqlen, n_kv_heads, head_dim = x.shape
    x = x[:, :, :, None, :].expand(bsz, seqlen, n_kv_heads, n_rep, head_dim)
    return x.reshape(bsz, seqlen, n_kv_heads * n_rep, head_dim)


class KVCache:
    """Room for the keys and values of all layers, (layers, B, max_seq_len, KV, D)."""

    def __init__(self, args: ModelArgs, bsz: int, dtype: torch.dtype) -> None:
        shape = (args.n_layers, bsz, args.max_seq_len, args.n_kv_heads, args.dim // args.n_heads)
        self.k = torch.zeros(shape, dtype=dtype)
        self.v = torch.zeros(shape, dtype=dtype)

    def write(self, layer: int, start_pos: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        end = start_pos + k.size(1)
        self.k[layer, :, start_pos:end] = k
        self.v[layer, :, start_pos:end] = v
        return self.k[layer, :, :end], self.v[layer, :, :end]

    def select(self, rows: Tensor) -> "KVCache":
        chosen = object.__new__(KVCache)
        chosen.k = self.k.index_select(1, rows)
        chosen.v = self.v.index_select(1, rows)
        return chosen


class Attention(nn.Module):
    def __init__(self, args: ModelArgs, layer_id: int) -> None:
        super().__init__()
        self.layer_id = layer_id
        self.n_heads, self.n_kv_heads = args.n_heads, args.n_kv_heads
        self.n_rep = args.n_heads // args.n_kv_heads
        self.head_dim = args.dim // args.n_heads
        self.wqkv = nn.Linear(args.dim, (args.n_heads + 2 * args.n_kv_heads) * self.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)
        self.attn_dropout = nn.Dropout(args.dropout)

    def forward(self, x: Tensor, freqs_cis: Tensor, visible: Tensor, start_pos: int, cache: KVCache | None) -> Tensor:
        bsz, seqlen, _ = x.shape
        heads = self.wqkv(x).view(bsz, seqlen, self.n_heads + 2 * self.n_kv_heads, self.head_dim)
        xq, xk, xv = heads.split([self.n_heads, self.n_kv_heads, self.n_kv_heads], dim=2)
        xq = apply_rotary_emb(xq, freqs_cis)
        xk = apply_rotary_emb(xk, freqs_cis)
        if cache is not None:
            xk, xv = cache.write(self.layer_id, start_pos, xk, xv)
        xk, xv = repeat_kv(xk, self.n_rep), repeat_kv(xv, self.n_rep)
        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        scores = torch.matmul(xq, xk.transpose(2, 3)) / math.sqrt(self.head_dim)
        scores = at_least_float(scores)
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = self.attn_dropout(F.softmax(scores, dim=-1).type_as(xq))
        output = torch.matmul(weights, xv)
        return self.wo(output.transpose(1, 2).reshape(bsz, seqlen, -1))


class FeedForward(nn.Module):
    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        hidden = args.multiple_of * math.ceil(8 * args.dim / 3 / args.multiple_of)
        self.w13 = nn.Linear(args.dim, 2 * hidden, bias=False)
        self.w2 = nn.Linear(hidden, args.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.w13(x).chunk(2, dim=-1)
        return self.w2(F.silu(gate) * up)


class TransformerBlock(nn.Module):
    def __init__(self, args: ModelArgs, layer_id: int) -> None:
        super().__init__()
        self.attention = Attention(args, layer_id)
        self.feed_forward = FeedForward(args)
        self.attention_norm = RMSNorm(args.dim, args.norm_eps)
        self.ffn_norm = RMSNorm(args.dim, args.norm_eps)
        self.resid_dropout = nn.Dropout(args.dropout)

    def forward(self, x: Tensor, freqs_cis: Tensor, visible: Tensor, start_pos: int, cache: KVCache | None) -> Tensor:
        h = self.attention(self.attention_norm(x), freqs_cis, visible, start_pos, cache)
        x = x + self.resid_dropout(h)
        h = self.feed_forward(self.ffn_norm(x))
        return x + self.resid_dropout(h)


class Transformer(nn.Module):
    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.args = args
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.emb_dropout = nn.Dropout(args.dropout)
        self.layers = nn.ModuleList([TransformerBlock(args, i) for i in range(args.n_layers)])
        self.norm = RMSNorm(args.dim, args.norm_eps)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                deep = name.endswith(("wo.weight", "w2.weight"))
                nn.init.normal_(weight, mean=0.0, std=0.02 / math.sqrt(2 * args.n_layers) if deep else 0.02)

    def positions(self, tokens: Tensor, start_pos: int, real: Tensor | None, documents: Tensor | None) -> Tensor:
        """(B, S): the place of each token in its row, in its document, or among the tokens that are not padding."""
        bsz, seqlen = tokens.shape
        place = torch.arange(start_pos, start_pos + seqlen, device=tokens.device).expand(bsz, seqlen)
        if documents is not None:
            begins = F.pad(documents[:, 1:] != documents[:, :-1], (1, 0))
            return place - torch.where(begins, place, 0).cummax(dim=1).values
        if real is not None:
            return (real.long().cumsum(dim=1) - 1).clamp(min=0)[:, start_pos:]
        return place

    def visible(self, tokens: Tensor, start_pos: int, real: Tensor | None, documents: Tensor | None) -> Tensor:
        """(B or 1, 1, S, T): True where a query may look."""
        total = start_pos + tokens.size(1)
        mask = torch.ones(total, total, dtype=torch.bool, device=tokens.device).tril()[start_pos:]
        mask = mask[None, None]
        if real is not None:
            mask = mask & real[:, None, None, :]
        if documents is not None:
            mask = mask & (documents[:, None, :, None] == documents[:, None, None, :])
        return mask

    def forward(
        self,
        tokens: Tensor,  # (B, S)
        start_pos: int = 0,
        cache: KVCache | None = None,
        real: Tensor | None = None,  # (B, start_pos + S)
        documents: Tensor | None = None,  # (B, S), without a cache only
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, S, V) and the last hidden states (B, S, C)."""
        if start_pos + tokens.size(1) > self.args.max_seq_len:
            raise ValueError(f"{start_pos + tokens.size(1)} tokens, at most {self.args.max_seq_len} fit")
        h = self.emb_dropout(self.tok_embeddings(tokens))
        places = self.positions(tokens, start_pos, real, documents)
        freqs_cis = precompute_freqs_cis(places, self.args.dim // self.args.n_heads, self.args.rope_theta)
        visible = self.visible(tokens, start_pos, real, documents)
        for layer in self.layers:
            h = layer(h, freqs_cis, visible, start_pos, cache)
        h = self.norm(h)
        return self.output(h), h

    @torch.no_grad()
    def generate(self, prompts: Tensor, max_new: int, real: Tensor | None = None, stop: int | None = None) -> Tensor:
        """Greedy; prompts may be padded on the left. A row that has stopped goes on with padding."""
        cache = KVCache(self.args, prompts.size(0), self.output.weight.dtype)
        tokens, fresh, start_pos = prompts, prompts, 0
        done = torch.zeros(prompts.size(0), 1, dtype=torch.bool)
        for _ in range(max_new):
            logits, _ = self(fresh, start_pos, cache, real)
            start_pos = tokens.size(1)
            fresh = logits[:, -1:].argmax(dim=-1).masked_fill(done, PAD_ID)
            if stop is not None:
                done = done | (fresh == stop)
            tokens = torch.cat([tokens, fresh], dim=1)
            real = None if real is None else torch.cat([real, torch.ones_like(real[:, :1])], dim=1)
        return tokens


def lm_loss(model: nn.Module, tokens: Tensor, reduction: str = "mean") -> Tensor:
    """Each token from those before it; padding is neither seen nor predicted."""
    logits, _ = model(tokens[:, :-1], real=tokens[:, :-1] != PAD_ID)
    return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=PAD_ID, reduction=reduction)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Matrices are decayed, gains are not."""
    decay = [p for p in model.parameters() if p.dim() >= 2]
    keep = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": keep, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.95))


def get_lr(step: int) -> float:
    """Linear warm-up over WARMUP_STEPS updates, then a cosine down to MIN_LR at MAX_STEPS."""
    if step < WARMUP_STEPS:
        return PEAK_LR * (step + 1) / WARMUP_STEPS
    progress = min(1.0, (step - WARMUP_STEPS + 1) / (MAX_STEPS - WARMUP_STEPS))
    return MIN_LR + 0.5 * (1.0 + math.cos(math.pi * progress)) * (PEAK_LR - MIN_LR)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: list[Tensor]) -> float:
    """One update; every predicted token has the same weight, whichever micro-batch it is in."""
    model.train()
    count = sum(int((tokens[:, 1:] != PAD_ID).sum()) for tokens in micro_batches)
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for tokens in micro_batches:
        loss = lm_loss(model, tokens, reduction="sum") / count
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), GRAD_CLIP)
    optimizer.step()
    return total
