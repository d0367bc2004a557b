"""Token embeddings (section 3.4).

A token id picks a row of a (V, D) matrix, times √D. The rows start small (variance 1/D) because the same matrix turns
hidden states into logits, where unit-length rows give logits of size one; the √D brings them back to the size of the
positional encodings they are added to.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.config import ModelConfig
from clearhead.model.dropout import dropout
from clearhead.model.norm import build_norm
from clearhead.model.positions import ADDED
from clearhead.model.trace import tap


class TokenEmbedding(nn.Module):
    """Everything between the ids and the first layer: token, position, segment, norm, dropout."""

    def __init__(self, config: ModelConfig, rows: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows or config.vocab_size, config.d_model))
        self.scale = math.sqrt(config.d_model) if config.embedding.scaled else 1.0
        kind = config.positions.kind
        self.positions = ADDED[kind](config) if kind in ADDED else None
        self.segments = None
        if config.embedding.segments:
            self.segments = nn.Parameter(torch.empty(config.embedding.segments, config.d_model))
        self.norm = build_norm(config) if config.embedding.norm else None
        self.dropout = config.dropout.embedding
        self.fused = config.kernels == "fused"

    def forward(
        self,
        tokens: Tensor,  # (B, S)
        inputs: AttentionInputs,  # says which position each token has
        segments: Tensor | None = None,  # (B, S)
    ) -> Tensor:  # (B, S, D)
        x = tap("tokens", look_up(self.weight, tokens, "token ids"), "B S D") * self.scale
        if self.positions is not None:
            x = x + tap("positions", self.positions(inputs.positions, inputs.longest, x), "B S D")
        if self.segments is not None or segments is not None:
            x = x + self.segment_rows(tokens, segments)
        if self.norm is not None:
            x = self.norm(x)
        return tap("embedding", dropout(x, self.dropout, self.training, self.fused), "B S D")

    def segment_rows(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """BERT's token types: which of several texts each token belongs to; all to the first unless said otherwise."""
        if self.segments is None:
            raise InputError("segments were given, but this model has no segment embeddings (embedding.segments = 0)")
        return look_up(self.segments, torch.zeros_like(tokens) if segments is None else segments, "segment ids")


def look_up(table: Tensor, ids: Tensor, what: str) -> Tensor:
    """Rows of a table; an id outside it is named instead of crashing somewhere below."""
    try:
        return F.embedding(ids, table)
    except IndexError:
        wrong = ids[(ids < 0) | (ids >= table.size(0))]
        raise InputError(
            f"{what} must be between 0 and {table.size(0) - 1} (the table has {table.size(0)} rows); "
            f"found {wrong[0].item()}"
        ) from None
