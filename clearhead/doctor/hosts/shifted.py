# mypy: disable-error-code="override,arg-type"
"""An encoder-decoder in the style of BART and Whisper: labels shifted inside the model, a tuple of tuples as its past.

Positions are learned and begin at row 2 of their table, norms stand behind the residuals and behind the embeddings.
Padding is found by its id; masks are boolean until they are expanded to numbers that are added. The past of a layer is
(key, value, cross key, cross value); the last two are computed from the source once. Rows may start with a token of
their own (a language), otherwise the decoder starts with EOS, as it does in BART.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BOS, PAD, EOS = 0, 1, 2
START, IGNORE = EOS, -100
SMOOTHING = 0.1
PEAK_LR, WARMUP = 5e-3, 80
MAX_GRAD_NORM, WEIGHT_DECAY = 1.0, 0.01

LayerPast = tuple[Tensor, ...]  # (B, H, T, d) key and value, (B, H, S, d) cross key and cross value
Past = tuple[LayerPast, ...]


@dataclass
class ShiftedConfig:
    vocab_size: int = 61
    d_model: int = 24
    num_heads: int = 3
    num_layers: int = 2
    ffn_dim: int = 96
    max_positions: int = 128
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.1
    init_std: float = 0.02


def shift_tokens_right(labels: Tensor, start: Tensor | int) -> Tensor:
    """What the decoder reads to say `labels`: the start token, then all of them but the last."""
    shifted = labels.new_zeros(labels.shape)
    shifted[:, 1:] = labels[:, :-1]
    shifted[:, 0] = start
    return shifted.masked_fill(shifted.eq(IGNORE), PAD)


def make_causal_mask(tgt_len: int, past_length: int, device: torch.device) -> Tensor:
    """(1, 1, T, past + T), True where a token may look."""
    visible = torch.ones(tgt_len, past_length + tgt_len, dtype=torch.bool, device=device)
    return visible.tril(diagonal=past_length)[None, None]


def expand_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Boolean to additive: zero where a key may be seen, the most negative number where not."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)


class LearnedPositionalEmbedding(nn.Embedding):
    """Rows 0 and 1 belong to nobody: positions begin behind the padding's row."""

    offset = PAD + 1

    def __init__(self, num_positions: int, embedding_dim: int) -> None:
        super().__init__(num_positions + self.offset, embedding_dim, padding_idx=PAD)

    def forward(self, tokens: Tensor, past_length: int = 0) -> Tensor:
        positions = torch.arange(past_length, past_length + tokens.size(1), device=tokens.device)
        return super().forward(positions + self.offset)


class Attention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.dropout = num_heads, embed_dim // num_heads, dropout
        self.scaling = self.head_dim**-0.5
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def split(self, states: Tensor) -> Tensor:
        return states.view(states.size(0), states.size(1), self.num_heads, self.head_dim).transpose(1, 2)

    def forward(
        self, hidden: Tensor, mask: Tensor, past: LayerPast | None = None, key_value_states: Tensor | None = None
    ) -> tuple[Tensor, LayerPast]:
        """With `key_value_states` it is cross-attention: what a past holds of them is not computed again."""
        query = self.split(self.q_proj(hidden) * self.scaling)
        if key_value_states is not None and past is not None:
            key, value = past
        else:
            states = hidden if key_value_states is None else key_value_states
            key, value = self.split(self.k_proj(states)), self.split(self.v_proj(states))
            if past is not None:
                key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        scores = torch.matmul(query, key.transpose(2, 3)) + mask
        weights = F.dropout(F.softmax(scores, dim=-1), p=self.dropout, training=self.training)
        mixed = torch.matmul(weights, value).transpose(1, 2)
        return self.out_proj(mixed.reshape(hidden.shape)), (key, value)


class EncoderLayer(nn.Module):
    def __init__(self, config: ShiftedConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config.d_model, config.num_heads, config.attention_dropout)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1, self.fc2 = nn.Linear(config.d_model, config.ffn_dim), nn.Linear(config.ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        self.dropout, self.activation_dropout = config.dropout, config.activation_dropout

    def feed_forward(self, hidden: Tensor) -> Tensor:
        residual = hidden
        hidden = F.gelu(self.fc1(hidden))
        hidden = F.dropout(hidden, p=self.activation_dropout, training=self.training)
        hidden = F.dropout(self.fc2(hidden), p=self.dropout, training=self.training)
        return self.final_layer_norm(residual + hidden)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        attended = F.dropout(self.self_attn(hidden, mask)[0], p=self.dropout, training=self.training)
        return self.feed_forward(self.self_attn_layer_norm(hidden + attended))


class DecoderLayer(EncoderLayer):
    def __init__(self, config: ShiftedConfig) -> None:
        super().__init__(config)
        self.encoder_attn = Attention(config.d_model, config.num_heads, dropout=config.attention_dropout)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)

    def forward(
        self, hidden: Tensor, mask: Tensor, source: Tensor, source_mask: Tensor, past: LayerPast | None
    ) -> tuple[Tensor, LayerPast]:
        own, cross = (past[:2], past[2:]) if past is not None else (None, None)
        residual = hidden
        hidden, own = self.self_attn(hidden, mask, own)
        hidden = F.dropout(hidden, p=self.dropout, training=self.training)
        hidden = self.self_attn_layer_norm(residual + hidden)
        residual = hidden
        hidden, cross = self.encoder_attn(hidden, source_mask, cross, key_value_states=source)
        hidden = F.dropout(hidden, p=self.dropout, training=self.training)
        return self.feed_forward(self.encoder_attn_layer_norm(residual + hidden)), own + cross


class Stack(nn.Module):
    def __init__(self, config: ShiftedConfig, embed_tokens: nn.Embedding, layer: type[EncoderLayer]) -> None:
        super().__init__()
        self.max_positions, self.dropout = config.max_positions, config.dropout
        self.embed_tokens = embed_tokens
        self.embed_positions = LearnedPositionalEmbedding(config.max_positions, config.d_model)
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.layers = nn.ModuleList(layer(config) for _ in range(config.num_layers))

    def embed(self, tokens: Tensor, past_length: int = 0) -> Tensor:
        if past_length + tokens.size(1) > self.max_positions:
            raise ValueError(f"more than {self.max_positions} tokens")
        hidden = self.embed_tokens(tokens) + self.embed_positions(tokens, past_length)
        return F.dropout(self.layernorm_embedding(hidden), p=self.dropout, training=self.training)


class Encoder(Stack):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.embed(input_ids)
        mask = expand_mask(attention_mask[:, None, None, :], hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return hidden


class Decoder(Stack):
    def forward(
        self, tokens: Tensor, attention_mask: Tensor, source: Tensor, source_mask: Tensor, past_key_values: Past | None
    ) -> tuple[Tensor, Past]:
        """`attention_mask` (B, past + T) is about all that was ever read, `tokens` (B, T) are new."""
        past_length = past_key_values[0][0].size(2) if past_key_values is not None else 0
        hidden = self.embed(tokens, past_length)
        visible = make_causal_mask(tokens.size(1), past_length, tokens.device) & attention_mask[:, None, None, :]
        mask = expand_mask(visible, hidden.dtype)
        cross_mask = expand_mask(source_mask[:, None, None, :], hidden.dtype)
        presents: Past = ()
        for index, layer in enumerate(self.layers):
            past = past_key_values[index] if past_key_values is not None else None
            hidden, present = layer(hidden, mask, source, cross_mask, past)
            presents += (present,)
        return hidden, presents


class ShiftedForConditionalGeneration(nn.Module):
    def __init__(self, config: ShiftedConfig) -> None:
        super().__init__()
        self.config = config
        self.shared = nn.Embedding(config.vocab_size, config.d_model, padding_idx=PAD)
        self.encoder = Encoder(config, self.shared, EncoderLayer)
        self.decoder = Decoder(config, self.shared, DecoderLayer)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        self.apply(self.init_weights)
        self.lm_head.weight = self.shared.weight

    def init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=self.config.init_std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight[module.padding_idx])

    def encode(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        attention_mask = input_ids.ne(PAD)
        return self.encoder(input_ids, attention_mask), attention_mask

    def decode(
        self, tokens: Tensor, encoded: tuple[Tensor, Tensor], past_key_values: Past | None = None
    ) -> tuple[Tensor, Past]:
        """`tokens` are all tokens of the rows so far; those that the past holds are not read again."""
        read = past_key_values[0][0].size(2) if past_key_values is not None else 0
        hidden, presents = self.decoder(tokens[:, read:], tokens.ne(PAD), *encoded, past_key_values)
        return self.lm_head(hidden) + self.final_logits_bias, presents

    def forward(
        self,
        input_ids: Tensor,
        decoder_ids: Tensor | None = None,
        labels: Tensor | None = None,
        start: Tensor | int = START,
    ) -> tuple[Tensor, Past]:
        """With `labels` (B, T), -100 where nothing is asked for, the decoder's inputs are made of them."""
        decoder_ids = decoder_ids if labels is None else shift_tokens_right(labels, start)
        return self.decode(decoder_ids, self.encode(input_ids))

    @torch.no_grad()
    def generate(self, input_ids: Tensor, tokens: Tensor, max_new_tokens: int, eos: int | None = EOS) -> Tensor:
        """Greedy; `tokens` (B, T) is what the rows begin with. A row that said `eos` is filled with padding."""
        was_training = self.training
        self.eval()
        length = tokens.size(1) + max_new_tokens
        unfinished = torch.ones(tokens.size(0), dtype=torch.bool, device=tokens.device)
        encoded, past = self.encode(input_ids), None
        while tokens.size(1) < length and unfinished.any():
            logits, past = self.decode(tokens, encoded, past)
            chosen = logits[:, -1].argmax(dim=-1).masked_fill(~unfinished, PAD)
            tokens = torch.cat([tokens, chosen[:, None]], dim=1)
            if eos is not None:
                unfinished = unfinished & chosen.ne(eos)
        self.train(was_training)
        return F.pad(tokens, (0, length - tokens.size(1)), value=PAD)


def reorder_cache(past_key_values: Past, beam_idx: Tensor) -> Past:
    return tuple(tuple(state.index_select(0, beam_idx) for state in layer) for layer in past_key_values)


def label_smoothed_nll(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over all labels that are not -100, and how many there are."""
    log_probs = F.log_softmax(logits, dim=-1)
    ignored = labels.eq(IGNORE)
    nll = -log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    smooth = -log_probs.mean(dim=-1)
    loss = (1 - SMOOTHING) * nll + SMOOTHING * smooth
    return loss.masked_fill(ignored, 0.0).sum(), (~ignored).sum()


def criterion(model: ShiftedForConditionalGeneration, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """`target` begins with the token that starts its row; the others are labels, padding apart."""
    start, labels = target[:, 0], target[:, 1:].masked_fill(target[:, 1:].eq(PAD), IGNORE)
    return label_smoothed_nll(model(source, labels=labels, start=start)[0], labels)


def batch_loss(model: ShiftedForConditionalGeneration, source: Tensor, target: Tensor) -> Tensor:
    loss, count = criterion(model, source, target)
    return loss / count


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    named = list(model.named_parameters())
    plain = {name for name, _ in named if name.endswith("bias") or "layer_norm" in name or "layernorm" in name}
    decayed, others = [p for name, p in named if name not in plain], [p for name, p in named if name in plain]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.98), eps=1e-6)


def inverse_sqrt(step: int) -> float:
    """Up in a straight line, then down with the root of the number of updates."""
    if step < WARMUP:
        return PEAK_LR * (step + 1) / WARMUP
    return PEAK_LR * math.sqrt(WARMUP / (step + 1))


def training_step(
    model: ShiftedForConditionalGeneration, optimizer: torch.optim.Optimizer, micro_batches: list[tuple[Tensor, Tensor]]
) -> float:
    """Sums are accumulated, then divided by the number of labels in all micro-batches, then clipped."""
    model.train()
    optimizer.zero_grad(set_to_none=True)
    total, num_items = 0.0, 0
    for source, target in micro_batches:
        loss, count = criterion(model, source, target)
        loss.backward()
        total, num_items = total + loss.item(), num_items + int(count)
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(num_items)
    nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    return total / num_items
