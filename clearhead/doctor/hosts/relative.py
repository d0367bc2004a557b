"""An encoder-decoder of the T5 family: relative position biases, RMSNorm, gated GELU, padding found by its id.

There are no positions in the embeddings. Each stack owns one table of biases, read by the bucket of the distance, and
all its layers add the same biases to their scores, which are not scaled: the queries' initialisation does that instead.
Padding is recognised by its token. Outputs are dataclasses, the head is the embedding, scaled by the root of its width.
"""

import math
from dataclasses import dataclass, field
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, IGNORE = 0, -100
EPSILON = 0.1
MAX_NORM = 1.0
BASE_LR, WARMUP = 1e-2, 100


@dataclass
class RelativeConfig:
    vocab_size: int = 61
    d_model: int = 24
    num_heads: int = 3
    num_layers: int = 2
    d_ff: int = 48
    dropout_rate: float = 0.1
    num_buckets: int = 32
    max_distance: int = 128
    layer_norm_epsilon: float = 1e-6


@dataclass
class EncoderOutput:
    last_hidden_state: Tensor  # (B, S, D)
    attention_mask: Tensor  # (B, S), True at real tokens


@dataclass
class Past:
    """What the decoder has read: per layer its keys and values, and those of the source, (B, H, T, d)."""

    attention_mask: Tensor  # (B, T), True at real tokens
    own: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    cross: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.attention_mask.size(1)

    def reorder(self, rows: Tensor) -> "Past":
        own = [(k.index_select(0, rows), v.index_select(0, rows)) for k, v in self.own]
        cross = [(k.index_select(0, rows), v.index_select(0, rows)) for k, v in self.cross]
        return Past(self.attention_mask.index_select(0, rows), own, cross)


@dataclass
class Seq2SeqOutput:
    logits: Tensor
    past: Past
    encoder: EncoderOutput


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        variance = hidden.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + self.eps))


class RelativeBias(nn.Module):
    """A learned number for every head and every bucket of distances: near ones exactly, far ones by their logarithm."""

    def __init__(self, config: RelativeConfig, bidirectional: bool) -> None:
        super().__init__()
        self.bidirectional = bidirectional
        self.num_buckets, self.max_distance = config.num_buckets, config.max_distance
        self.table = nn.Embedding(config.num_buckets, config.num_heads)

    def bucket(self, relative: Tensor) -> Tensor:
        buckets = self.num_buckets
        first = torch.zeros_like(relative)
        if self.bidirectional:
            buckets //= 2
            first = (relative > 0).long() * buckets
            distance = relative.abs()
        else:
            distance = (-relative).clamp(min=0)
        exact = buckets // 2
        ratio = torch.log(distance.clamp(min=1).double() / exact) / math.log(self.max_distance / exact)
        far = exact + (ratio * (buckets - exact)).long()
        return first + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))

    def forward(self, queries: int, keys: int) -> Tensor:
        """(1, H, queries, keys); the queries are the last of the keys."""
        key = torch.arange(keys, device=self.table.weight.device)
        query = key[keys - queries :]
        values = self.table(self.bucket(key[None, :] - query[:, None]))  # (Q, K, H)
        return values.permute(2, 0, 1).unsqueeze(0)


class Attention(nn.Module):
    def __init__(self, config: RelativeConfig) -> None:
        super().__init__()
        self.num_heads, self.d_kv = config.num_heads, config.d_model // config.num_heads
        self.q = nn.Linear(config.d_model, config.d_model, bias=False)
        self.k = nn.Linear(config.d_model, config.d_model, bias=False)
        self.v = nn.Linear(config.d_model, config.d_model, bias=False)
        self.o = nn.Linear(config.d_model, config.d_model, bias=False)
        self.dropout = nn.Dropout(config.dropout_rate)

    def shape(self, states: Tensor) -> Tensor:
        return states.view(states.size(0), -1, self.num_heads, self.d_kv).transpose(1, 2)

    def keys_and_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        return self.shape(self.k(states)), self.shape(self.v(states))

    def forward(self, hidden: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        scores = torch.matmul(self.shape(self.q(hidden)), key.transpose(3, 2)) + bias
        weights = self.dropout(F.softmax(scores, dim=-1))
        mixed = torch.matmul(weights, value).transpose(1, 2).contiguous()
        return self.o(mixed.view(hidden.size(0), -1, self.num_heads * self.d_kv))


class GatedFeedForward(nn.Module):
    def __init__(self, config: RelativeConfig) -> None:
        super().__init__()
        self.wi_0 = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.wi_1 = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.wo = nn.Linear(config.d_ff, config.d_model, bias=False)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(self, hidden: Tensor) -> Tensor:
        gate = F.gelu(self.wi_0(hidden), approximate="tanh")
        return self.wo(self.dropout(gate * self.wi_1(hidden)))


class Block(nn.Module):
    def __init__(self, config: RelativeConfig, is_decoder: bool) -> None:
        super().__init__()
        self.self_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.self_attention = Attention(config)
        if is_decoder:
            self.cross_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
            self.cross_attention = Attention(config)
        self.ff_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.ff = GatedFeedForward(config)
        self.dropout = nn.Dropout(config.dropout_rate)

    def read_source(self, encoder: EncoderOutput) -> tuple[Tensor, Tensor]:
        return self.cross_attention.keys_and_values(encoder.last_hidden_state)

    def forward(
        self,
        hidden: Tensor,
        bias: Tensor,
        past: tuple[Tensor, Tensor] | None = None,
        source: tuple[Tensor, Tensor] | None = None,
        source_bias: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        normed = self.self_norm(hidden)
        key, value = self.self_attention.keys_and_values(normed)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        hidden = hidden + self.dropout(self.self_attention(normed, key, value, bias))
        if source is not None and source_bias is not None:
            normed = self.cross_norm(hidden)
            hidden = hidden + self.dropout(self.cross_attention(normed, *source, source_bias))
        hidden = hidden + self.dropout(self.ff(self.ff_norm(hidden)))
        return hidden, (key, value)


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Zero where a key may be seen, the most negative number where not."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)


class Stack(nn.Module):
    def __init__(self, config: RelativeConfig, is_decoder: bool) -> None:
        super().__init__()
        self.relative_bias = RelativeBias(config, bidirectional=not is_decoder)
        self.block = nn.ModuleList(Block(config, is_decoder) for _ in range(config.num_layers))
        self.final_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout_rate)


class RelativeForConditionalGeneration(nn.Module):
    def __init__(self, config: RelativeConfig) -> None:
        super().__init__()
        self.config = config
        self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = Stack(config, is_decoder=False)
        self.decoder = Stack(config, is_decoder=True)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.apply(self.init_weights)
        self.lm_head.weight = self.shared.weight

    def init_weights(self, module: nn.Module) -> None:
        width, d_kv = self.config.d_model, self.config.d_model // self.config.num_heads
        if isinstance(module, Attention):
            nn.init.normal_(module.q.weight, std=(width * d_kv) ** -0.5)
            for linear in (module.k, module.v, module.o):
                nn.init.normal_(linear.weight, std=width**-0.5)
        elif isinstance(module, GatedFeedForward):
            nn.init.normal_(module.wi_0.weight, std=width**-0.5)
            nn.init.normal_(module.wi_1.weight, std=width**-0.5)
            nn.init.normal_(module.wo.weight, std=self.config.d_ff**-0.5)
        elif isinstance(module, RelativeBias):
            nn.init.normal_(module.table.weight, std=width**-0.5)
        elif module is self.shared:
            nn.init.normal_(self.shared.weight, std=0.5)

    def encode(self, input_ids: Tensor) -> EncoderOutput:
        real = input_ids.ne(PAD)
        stack, length = self.encoder, input_ids.size(1)
        hidden = stack.dropout(self.shared(input_ids))
        bias = stack.relative_bias(length, length) + additive(real[:, None, None, :], hidden.dtype)
        for block in stack.block:
            hidden, _ = block(hidden, bias)
        return EncoderOutput(stack.dropout(stack.final_norm(hidden)), real)

    def decode(self, decoder_input_ids: Tensor, encoder: EncoderOutput, past: Past | None = None) -> Seq2SeqOutput:
        stack, queries = self.decoder, decoder_input_ids.size(1)
        real = decoder_input_ids.ne(PAD)
        if past is None:
            cross = [cast(Block, block).read_source(encoder) for block in stack.block]
            before: list[tuple[Tensor, Tensor] | None] = [None] * len(stack.block)
        else:
            cross, before = past.cross, list(past.own)
            real = torch.cat([past.attention_mask, real], dim=1)
        keys = real.size(1)
        causal = torch.ones(keys, keys, dtype=torch.bool, device=real.device).tril()[keys - queries :]
        hidden = stack.dropout(self.shared(decoder_input_ids))
        bias = stack.relative_bias(queries, keys) + additive(causal & real[:, None, None, :], hidden.dtype)
        source_bias = additive(encoder.attention_mask[:, None, None, :], hidden.dtype)
        now = Past(real, [], cross)
        for block, own, source in zip(stack.block, before, cross, strict=True):
            hidden, present = block(hidden, bias, own, source, source_bias)
            now.own.append(present)
        hidden = stack.dropout(stack.final_norm(hidden)) * self.config.d_model**-0.5
        return Seq2SeqOutput(self.lm_head(hidden), now, encoder)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Seq2SeqOutput:
        return self.decode(decoder_input_ids, self.encode(input_ids))

    @torch.no_grad()
    def generate(self, input_ids: Tensor, start: Tensor, max_new_tokens: int) -> Tensor:
        """Greedy, one token at a time; what the source holds is computed once."""
        was_training = self.training
        self.eval()
        encoder = self.encode(input_ids)
        tokens, step, past = start, start, None
        for _ in range(max_new_tokens):
            output = self.decode(step, encoder, past)
            past = output.past
            step = output.logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, step], dim=1)
        self.train(was_training)
        return tokens


def split_target(target: Tensor) -> tuple[Tensor, Tensor]:
    """What the decoder reads and what it has to say; padding is never asked for."""
    labels = target[:, 1:]
    return target[:, :-1], labels.masked_fill(labels.eq(PAD), IGNORE)


def smoothed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum over all labels that count."""
    log_probs = F.log_softmax(logits, dim=-1)
    counts = labels.ne(IGNORE)
    nll = -log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    smooth = -log_probs.mean(dim=-1)
    return ((1 - EPSILON) * nll + EPSILON * smooth).masked_fill(~counts, 0.0).sum()


def token_count(target: Tensor) -> Tensor:
    return split_target(target)[1].ne(IGNORE).sum()


def summed_loss(model: RelativeForConditionalGeneration, source: Tensor, target: Tensor) -> Tensor:
    decoder_input_ids, labels = split_target(target)
    return smoothed_loss(model(source, decoder_input_ids).logits, labels)


def batch_loss(model: RelativeForConditionalGeneration, source: Tensor, target: Tensor) -> Tensor:
    return summed_loss(model, source, target) / token_count(target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    matrices = [p for name, p in model.named_parameters() if "norm" not in name and "relative_bias" not in name]
    others = [p for name, p in model.named_parameters() if "norm" in name or "relative_bias" in name]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=BASE_LR, betas=(0.9, 0.98))


def rsqrt_schedule(step: int) -> float:
    """Linear warm-up, then the inverse root of the step."""
    if step < WARMUP:
        return BASE_LR * (step + 1) / WARMUP
    return BASE_LR * math.sqrt(WARMUP / (step + 1))


class Trainer:
    def __init__(self, model: RelativeForConditionalGeneration, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def update(self, micro_batches: list[tuple[Tensor, Tensor]]) -> float:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        tokens = sum(token_count(target) for _, target in micro_batches)
        total = 0.0
        for source, target in micro_batches:
            loss = summed_loss(self.model, source, target) / tokens
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        self.optimizer.step()
        return total
