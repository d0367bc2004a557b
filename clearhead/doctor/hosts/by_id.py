"""A translator that finds padding by its id, in the manner of the larger toolkits: no mask goes in from outside.

Source and target have vocabularies of their own, with padding ids of their own. Learned positions count real tokens
and begin after the padding id, whose row is zero in both tables. Pre-norm, fused attention kernels with boolean
masks (True: may look), outputs as a dictionary. While decoding, a dictionary for each layer keeps keys and values.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SOURCE_PAD = 1
TARGET_PAD = 2
SMOOTHING = 0.1
WARMUP = 30
PEAK = 5e-4
CLIP = 2.0

LayerState = dict[str, Tensor]


def embedding(count: int, dim: int, pad: int) -> nn.Embedding:
    table = nn.Embedding(count, dim, padding_idx=pad)
    nn.init.normal_(table.weight, mean=0.0, std=dim**-0.5)
    nn.init.zeros_(table.weight[pad])
    return table


class Embed(nn.Module):
    """Tokens and their positions; position pad + 1 is the first real token's."""

    def __init__(self, vocab: int, dim: int, max_positions: int, pad: int, dropout: float) -> None:
        super().__init__()
        self.pad, self.max_positions = pad, max_positions
        self.tokens = embedding(vocab, dim, pad)
        self.positions = embedding(pad + 1 + max_positions, dim, pad)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, before: Tensor | None = None) -> Tensor:
        """(B, S) tokens; `before` counts the real tokens each row has read already, (B, 1)."""
        real = tokens.ne(self.pad)
        index = real.long().cumsum(dim=1)
        if before is not None:
            index = index + before
        if int(index.max()) > self.max_positions:
            raise ValueError(f"{int(index.max())} tokens in a row, and positions for {self.max_positions}")
        positions = index * real + self.pad
        return self.dropout(self.norm(self.tokens(tokens) + self.positions(positions)))


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def shape(self, x: Tensor) -> Tensor:
        """(B, S, D) to (B, H, S, D/H)."""
        return x.unflatten(-1, (self.heads, -1)).permute(0, 2, 1, 3)

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.shape(self.k_proj(x)), self.shape(self.v_proj(x))

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        """`allowed` is boolean and broadcasts to (B, H, S, T)."""
        # a row of padding has nothing to look at; it may look at everything, and nobody reads it
        allowed = allowed | ~allowed.any(dim=-1, keepdim=True)
        out = F.scaled_dot_product_attention(
            self.shape(self.q_proj(x)), keys, values, attn_mask=allowed, dropout_p=self.dropout * self.training
        )
        return self.out_proj(out.permute(0, 2, 1, 3).flatten(2))


class Layer(nn.Module):
    """One layer of either side; the decoder's has cross-attention as well."""

    def __init__(self, dim: int, heads: int, dropout: float, cross: bool) -> None:
        super().__init__()
        self.self_attn_norm, self.self_attn = nn.LayerNorm(dim), Attention(dim, heads, dropout)
        if cross:
            self.cross_attn_norm, self.cross_attn = nn.LayerNorm(dim), Attention(dim, heads, dropout)
        self.ffn_norm, self.fc1, self.fc2 = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        allowed: Tensor,
        memory: Tensor | None = None,
        memory_allowed: Tensor | None = None,
        state: LayerState | None = None,
    ) -> Tensor:
        y = self.self_attn_norm(x)
        keys, values = self.self_attn.keys_values(y)
        if state is not None:
            if "keys" in state:
                keys = torch.cat((state["keys"], keys), dim=2)
                values = torch.cat((state["values"], values), dim=2)
            state["keys"], state["values"] = keys, values
        x = x + self.dropout(self.self_attn(y, keys, values, allowed))
        if memory is not None and memory_allowed is not None:
            if state is not None and "memory_keys" in state:
                keys, values = state["memory_keys"], state["memory_values"]
            else:
                keys, values = self.cross_attn.keys_values(memory)
            if state is not None:
                state["memory_keys"], state["memory_values"] = keys, values
            x = x + self.dropout(self.cross_attn(self.cross_attn_norm(x), keys, values, memory_allowed))
        y = F.gelu(self.fc1(self.ffn_norm(x)))
        return x + self.dropout(self.fc2(self.dropout(y)))


class Translator(nn.Module):
    def __init__(
        self,
        source_vocab: int,
        target_vocab: int,
        dim: int = 32,
        heads: int = 4,
        layers: int = 2,
        max_positions: int = 512,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.source_embed = Embed(source_vocab, dim, max_positions, SOURCE_PAD, dropout)
        self.target_embed = Embed(target_vocab, dim, max_positions, TARGET_PAD, dropout)
        self.encoder = nn.ModuleList(Layer(dim, heads, dropout, cross=False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(dim, heads, dropout, cross=True) for _ in range(layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def encode(self, source: Tensor) -> dict[str, Tensor]:
        allowed = source.ne(SOURCE_PAD)[:, None, None, :]
        x = self.source_embed(source)
        for layer in self.encoder:
            x = layer(x, allowed)
        return {"memory": self.encoder_norm(x), "allowed": allowed}

    def start(self) -> dict[str, Any]:
        """The state of a decoder that has read nothing."""
        return {"real": None, "layers": [{} for _ in self.decoder]}

    def decode(self, encoded: dict[str, Tensor], target: Tensor, state: dict[str, Any] | None = None) -> Tensor:
        """(B, S) tokens, after those in the state, to (B, S, V)."""
        real, before = target.ne(TARGET_PAD), None
        if state is not None:
            if state["real"] is not None:
                before = state["real"].sum(dim=1, keepdim=True)
                real = torch.cat((state["real"], real), dim=1)
            state["real"] = real
        length, total = target.size(1), real.size(1)
        causal = torch.ones(length, total, dtype=torch.bool).tril(diagonal=total - length)
        allowed = causal & real[:, None, None, :]
        x = self.target_embed(target, before)
        for number, layer in enumerate(self.decoder):
            layer_state = None if state is None else state["layers"][number]
            x = layer(x, allowed, encoded["memory"], encoded["allowed"], layer_state)
        return F.linear(self.decoder_norm(x), self.target_embed.tokens.weight)

    def forward(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        encoded = self.encode(source)
        return {"logits": self.decode(encoded, target), "encoder_out": encoded["memory"]}

    @torch.no_grad()
    def generate(self, source: Tensor, prefix: Tensor, max_new: int) -> Tensor:
        """The most likely continuation of (B, S) target tokens."""
        was_training = self.training
        self.eval()
        encoded, state = self.encode(source), self.start()
        output = latest = prefix
        for _ in range(max_new):
            scores = self.decode(encoded, latest, state)[:, -1]
            latest = scores.argmax(dim=-1, keepdim=True)
            output = torch.cat((output, latest), dim=1)
        self.train(was_training)
        return output


def reorder_state(state: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """The state in which row i goes on from row rows[i]."""
    layers = [{name: tensor.index_select(0, rows) for name, tensor in layer.items()} for layer in state["layers"]]
    return {"real": state["real"].index_select(0, rows), "layers": layers}


class SmoothedCrossEntropy(nn.Module):
    """Summed over the labels that are no padding; the wrong words share `smoothing`, the right one keeps the rest."""

    def __init__(self, smoothing: float = SMOOTHING, ignore: int = TARGET_PAD) -> None:
        super().__init__()
        self.smoothing, self.ignore = smoothing, ignore

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_probs = F.log_softmax(logits, dim=-1)
        right = log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        wrong = log_probs.sum(dim=-1) - right
        losses = -(1 - self.smoothing) * right - self.smoothing / (logits.size(-1) - 1) * wrong
        return losses.masked_fill(labels.eq(self.ignore), 0.0).sum()


def summed_loss(model: nn.Module, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of predicting each target token from those before it, and the number of words predicted."""
    logits = model(source, target[:, :-1])["logits"]
    labels = target[:, 1:]
    return SmoothedCrossEntropy()(logits, labels), labels.ne(TARGET_PAD).sum()


def mean_loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    total, words = summed_loss(model, source, target)
    return total / words


class Trainer:
    """Adds up gradients over micro-batches, divides by the words they had, clips, steps."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def update(self, micro_batches: list[tuple[Tensor, Tensor]]) -> float:
        self.optimizer.zero_grad()
        words, total = 0, 0.0
        for source, target in micro_batches:
            loss, count = summed_loss(self.model, source, target)
            loss.backward()
            words += int(count)
            total += float(loss.detach())
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        for gradient in gradients:
            gradient.div_(words)
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        return total / words


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW; biases, gains and shifts are not decayed."""
    decay = [p for p in model.parameters() if p.ndim >= 2]
    no_decay = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK)


def inverse_sqrt(update: int) -> float:
    """Up to PEAK in WARMUP updates, then down with the root of the update."""
    number = update + 1
    return PEAK * number / WARMUP if number < WARMUP else PEAK * (WARMUP / number) ** 0.5
