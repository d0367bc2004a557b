"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), whole, in one file, with nothing but torch.

Read it from top to bottom: numbers become vectors, vectors look at each other, layers are stacked, the result is
compared with what should have come, the weights move, and the model writes. Everything is as plain as it can be said;
`clearhead/model/` is the same with every choice the field has made since, under the same parameter names, so that the
weights of one load into the other. `clearhead learn` is a course in which you write this file yourself.

Letters for sizes: B batch, S queries, T keys (S = T in self-attention), D width, H heads, d = D/H, F hidden, V tokens.
Masks are boolean and True means *may look*. A token is *real* if it is not padding.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

# ---- from numbers to vectors (sections 3.4 and 3.5) ----------------------------------------------------------------


def embed(
    tokens: Tensor,  # (B, S), numbers below V
    table: Tensor,  # (V, D)
) -> Tensor:  # (B, S, D)
    """Each token's row of the table, times √D: rows start with variance 1/D, and positions of size one are added."""
    return table[tokens] * math.sqrt(table.size(1))


def sinusoids(length: int, width: int) -> Tensor:  # (S, D)
    """A row for each position from 0: sin(position / 10000^(2i/D)) in column 2i, and its cosine in column 2i + 1."""
    position = torch.arange(length, dtype=torch.float64)[:, None]  # (S, 1)
    frequency = 10_000 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)  # (D/2,)
    angle = position * frequency  # (S, D/2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


# ---- attention (section 3.2.1) -------------------------------------------------------------------------------------


def attention(
    q: Tensor,  # (B, H, S, d)
    k: Tensor,  # (B, H, T, d)
    v: Tensor,  # (B, H, T, d)
) -> Tensor:  # (B, H, S, d)
    """softmax(q kᵀ / √d) v: each query mixes the values, by how well their keys match it."""
    # q·k sums d products of variance one: without the √d, wider heads would have a sharper softmax
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, H, S, T)
    return scores.softmax(-1) @ v


# ---- masks (section 3.2.3) -----------------------------------------------------------------------------------------


def causal_mask(length: int) -> Tensor:  # (S, S), boolean
    """Position i may look at positions up to its own, and at none that comes later."""
    return torch.ones(length, length, dtype=torch.bool).tril()


def padding_mask(real: Tensor) -> Tensor:  # (B, T), True at real tokens -> (B, 1, 1, T)
    """Every query of a row, in every head, may look at the row's real tokens."""
    return real[:, None, None, :]


def masked_attention(
    q: Tensor,  # (B, H, S, d)
    k: Tensor,  # (B, H, T, d)
    v: Tensor,  # (B, H, T, d)
    may_attend: Tensor | None = None,  # broadcasts to (B, H, S, T); True = may look
) -> Tensor:  # (B, H, S, d)
    """Attention in which a query sees only the keys it may look at."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, H, S, T)
    if may_attend is not None:
        # before the softmax, so that what is left still sums to one
        scores = scores.masked_fill(~may_attend, -math.inf)
    return scores.softmax(-1) @ v


# ---- many heads (section 3.2.2) ------------------------------------------------------------------------------------


def split_heads(x: Tensor, heads: int) -> Tensor:  # (B, S, D) -> (B, H, S, d)
    """Head h gets features h·d to h·d + d of every token."""
    batch, length, width = x.shape
    # a view straight to (B, H, S, d) would deal out tokens, not features
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:  # (B, H, S, d) -> (B, S, D)
    """The heads' features side by side again: the inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """H attentions at once, each on its own share of the features. All heads' projections are one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x: Tensor,  # (B, S, D), which asks
        memory: Tensor,  # (B, T, D), which answers; x itself in self-attention
        may_attend: Tensor | None = None,  # broadcasts to (B, H, S, T)
    ) -> Tensor:  # (B, S, D)
        """Queries from x, keys and values from the memory; then the heads together through `out`."""
        q = split_heads(self.query(x), self.heads)  # (B, H, S, d)
        k = split_heads(self.key(memory), self.heads)  # (B, H, T, d)
        v = split_heads(self.value(memory), self.heads)  # (B, H, T, d)
        return self.out(merge_heads(masked_attention(q, k, v, may_attend)))


# ---- what each token does alone (sections 3.3 and 3.1) -------------------------------------------------------------


class FeedForward(nn.Module):
    """max(0, x W₁ + b₁) W₂ + b₂, for each token by itself."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:  # (B, S, D) -> (B, S, D)
        """Widen, cut off what is negative, narrow."""
        return self.outer(self.inner(x).relu())


class LayerNorm(nn.Module):
    """Each token's vector to mean 0 and variance 1 (Ba et al., 2016), then times `weight`, plus `bias`; ε is 1e-5."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:  # (B, S, D) -> (B, S, D)
        """(x − mean) / √(variance + ε) over the D features of a token; the variance divides by D, not D − 1."""
        centred = x - x.mean(-1, keepdim=True)  # (B, S, D) − (B, S, 1)
        variance = (centred * centred).mean(-1, keepdim=True)  # (B, S, 1)
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


# ---- the encoder (section 3.1) -------------------------------------------------------------------------------------


class Residual(nn.Module):
    """norm(x + dropout(sublayer(x))): a road around every sub-layer, so that a deep stack still learns."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:  # (B, S, D) -> (B, S, D)
        """Add what the sub-layer makes of x to x; the norm comes last, as in the paper."""
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """The tokens look at each other, then each works alone."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(width, heads)
        self.self_attention_residual = Residual(width, dropout)
        self.feed_forward = FeedForward(width, hidden)
        self.feed_forward_residual = Residual(width, dropout)

    def forward(self, x: Tensor, may_attend: Tensor | None = None) -> Tensor:  # (B, S, D) -> (B, S, D)
        """Self-attention in its residual, then the feed-forward in its own."""
        x = self.self_attention_residual(x, lambda x: self.self_attention(x, x, may_attend))
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of layers, each with parameters of its own, in `layers`."""

    def __init__(self, layers: int, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(width, heads, hidden, dropout) for _ in range(layers))

    def forward(
        self,
        x: Tensor,  # (B, S, D)
        real: Tensor | None = None,  # (B, S), True at real tokens; None: all are
    ) -> Tensor:  # (B, S, D)
        """Layer after layer; padding is hidden from all of them."""
        may_attend = None if real is None else padding_mask(real)
        for layer in self.layers:
            x = layer(x, may_attend)
        return x


# ---- the decoder, and the whole (sections 3.1 and 3.4) -------------------------------------------------------------


class DecoderLayer(nn.Module):
    """The target's tokens look back at each other, then over to the source, then each works alone."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(width, heads)
        self.self_attention_residual = Residual(width, dropout)
        self.cross_attention = MultiHeadAttention(width, heads)
        self.cross_attention_residual = Residual(width, dropout)
        self.feed_forward = FeedForward(width, hidden)
        self.feed_forward_residual = Residual(width, dropout)

    def forward(
        self,
        x: Tensor,  # (B, S, D)
        memory: Tensor,  # (B, T, D), what the encoder made of the source
        may_attend: Tensor,  # (S, S) or what broadcasts to (B, H, S, S): for self-attention
        memory_may_attend: Tensor | None = None,  # broadcasts to (B, H, S, T): for cross-attention
    ) -> Tensor:  # (B, S, D)
        """Self-attention, cross-attention, feed-forward, each in its residual."""
        x = self.self_attention_residual(x, lambda x: self.self_attention(x, x, may_attend))
        x = self.cross_attention_residual(x, lambda x: self.cross_attention(x, memory, memory_may_attend))
        return self.feed_forward_residual(x, self.feed_forward)


class Decoder(nn.Module):
    """A stack of layers in which no token sees a later one."""

    def __init__(self, layers: int, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(width, heads, hidden, dropout) for _ in range(layers))

    def forward(
        self,
        x: Tensor,  # (B, S, D)
        memory: Tensor,  # (B, T, D)
        source_real: Tensor | None = None,  # (B, T), True at the source's real tokens
    ) -> Tensor:  # (B, S, D)
        """Layer after layer; the future and the source's padding are hidden from all of them."""
        may_attend = causal_mask(x.size(1)).to(x.device)
        memory_may_attend = None if source_real is None else padding_mask(source_real)
        for layer in self.layers:
            x = layer(x, memory, may_attend, memory_may_attend)
        return x


class Transformer(nn.Module):
    """Reads a source, writes a target (figure 1). One table of vectors serves the source, the target and the logits."""

    def __init__(self, vocab: int, width: int, heads: int, hidden: int, layers: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.encoder = Encoder(layers, width, heads, hidden, dropout)
        self.decoder = Decoder(layers, width, heads, hidden, dropout)
        self.dropout = nn.Dropout(dropout)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)  # as a head, it then gives logits of size one

    def vectors(self, tokens: Tensor) -> Tensor:  # (B, S) -> (B, S, D)
        """What the first layer reads: each token's vector plus that of its position."""
        x = embed(tokens, self.embedding.weight)
        return self.dropout(x + sinusoids(x.size(1), x.size(2)).to(x))

    def encode(self, source: Tensor, source_real: Tensor | None = None) -> Tensor:  # (B, T) -> (B, T, D)
        """The memory that the decoder looks into."""
        return self.encoder(self.vectors(source), source_real)

    def decode(
        self,
        target: Tensor,  # (B, S)
        memory: Tensor,  # (B, T, D)
        source_real: Tensor | None = None,  # (B, T)
    ) -> Tensor:  # (B, S, V)
        """Logits of the token after each of the target's, by the table that embeds them (section 3.4)."""
        hidden = self.decoder(self.vectors(target), memory, source_real)  # (B, S, D)
        return hidden @ self.embedding.weight.T

    def forward(self, source: Tensor, target: Tensor, source_real: Tensor | None = None) -> Tensor:
        """Both in one: (B, T) and (B, S) to logits (B, S, V)."""
        return self.decode(target, self.encode(source, source_real), source_real)


# ---- how wrong it was (sections 3.1 and 5.4) -----------------------------------------------------------------------


def shift(target: Tensor) -> tuple[Tensor, Tensor]:  # (B, S + 1) -> (B, S), (B, S)
    """What the decoder reads, and what it should say at each place: the token that comes next."""
    return target[:, :-1], target[:, 1:]


def loss(
    logits: Tensor,  # (B, S, V)
    labels: Tensor,  # (B, S)
    pad: int,  # labels of this value do not count
    smoothing: float = 0.0,  # ε: so much of the target is spread evenly over all V tokens
) -> Tensor:  # one number
    """Cross-entropy with label smoothing, the mean over all labels that are no padding."""
    log_p = logits.log_softmax(-1)  # (B, S, V)
    right = log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)  # (B, S)
    losses = -((1 - smoothing) * right + smoothing * log_p.mean(-1))
    return losses[labels != pad].mean()


# ---- how far to move (section 5.3) ---------------------------------------------------------------------------------


def noam(step: int, width: int, warmup: int, factor: float = 1.0) -> float:
    """The learning rate of update `step`, counted from 1: up in a line for `warmup` updates, then down as 1/√step."""
    return factor * width**-0.5 * min(step**-0.5, step * warmup**-1.5)


def update(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, rate: float, max_norm: float = 1.0
) -> None:
    """One step of all groups at this rate, along the loss's gradient, which is first cut to length `max_norm`."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()


# ---- how it writes -------------------------------------------------------------------------------------------------


@torch.no_grad()
def greedy(
    model: Transformer,
    source: Tensor,  # (B, T)
    source_real: Tensor | None,  # (B, T)
    bos: int,  # the token that begins a target
    eos: int,  # the token that ends it
    longest: int,  # tokens at most
) -> list[list[int]]:
    """The likeliest next token, again and again, until every row has said `eos`; rows without `bos` and `eos`."""
    memory = model.encode(source, source_real)
    target = torch.full_like(source[:, :1], bos)  # (B, 1)
    for _ in range(longest):
        logits = model.decode(target, memory, source_real)[:, -1]  # (B, V): the last position says what comes next
        target = torch.cat((target, logits.argmax(-1, keepdim=True)), dim=1)
        if (target == eos).any(1).all():
            break
    rows: list[list[int]] = target[:, 1:].tolist()
    return [row[: row.index(eos)] if eos in row else row for row in rows]


def keys_and_values(attention: MultiHeadAttention, memory: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T, D) -> (B, H, T, d), twice."""
    return split_heads(attention.key(memory), attention.heads), split_heads(attention.value(memory), attention.heads)


def look(attention: MultiHeadAttention, x: Tensor, k: Tensor, v: Tensor, may_attend: Tensor | None = None) -> Tensor:
    """What `attention` makes of x (B, S, D) with keys and values that are there already."""
    q = split_heads(attention.query(x), attention.heads)
    return attention.out(merge_heads(masked_attention(q, k, v, may_attend)))


@torch.no_grad()
def step(
    model: Transformer,
    token: Tensor,  # (B, 1), the newest token of the target
    memory: Tensor,  # (B, T, D)
    source_real: Tensor | None,  # (B, T)
    cache: dict[Any, Any],  # empty at first, and then given back at every step: what earlier steps have left
) -> Tensor:  # (B, 1, V)
    """`decode`'s last position, from the newest token alone: keys and values of earlier tokens are in the cache."""
    position = cache.setdefault("position", 0)
    row = sinusoids(position + 1, memory.size(-1))[position]  # (D,)
    x = embed(token, model.embedding.weight)  # (B, 1, D)
    x = model.dropout(x + row.to(x))
    memory_may_attend = None if source_real is None else padding_mask(source_real)
    layer: Any
    for number, layer in enumerate(model.decoder.layers):
        k, v = keys_and_values(layer.self_attention, x)  # (B, H, 1, d)
        if position:
            old_k, old_v = cache[number]
            k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)  # (B, H, position + 1, d)
        else:  # the memory stays as it is, so its keys and values are made once
            cache["memory", number] = keys_and_values(layer.cross_attention, memory)
        cache[number] = k, v
        # the newest token may look at all that are there, so it needs no causal mask
        x = layer.self_attention_residual(x, partial(look, layer.self_attention, k=k, v=v))
        k, v = cache["memory", number]
        sublayer = partial(look, layer.cross_attention, k=k, v=v, may_attend=memory_may_attend)
        x = layer.cross_attention_residual(x, sublayer)
        x = layer.feed_forward_residual(x, layer.feed_forward)
    cache["position"] = position + 1
    return x @ model.embedding.weight.T


# ---- how it learns -------------------------------------------------------------------------------------------------

PAD, BOS, EOS = 0, 1, 2


def train(
    model: Transformer,
    batches: Iterable[tuple[Tensor, Tensor]],  # source (B, T) and target (B, S + 1), each filled up with PAD;
    steps: int,  # a target begins with BOS and ends with EOS
    warmup: int,
) -> list[float]:
    """Updates on as many batches; the loss of each. Leaves the model in evaluation."""
    # Adam forgets slowly here (section 5.3): with 0.999 its second average would outlive the warm-up
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses = []
    model.train()
    for number, (source, target) in enumerate(islice(batches, steps), 1):
        inputs, labels = shift(target)
        error = loss(model(source, inputs, source != PAD), labels, PAD, smoothing=0.1)
        update(model, optimizer, error, noam(number, model.embedding.weight.size(1), warmup))
        losses.append(error.item())
    model.eval()
    return losses
