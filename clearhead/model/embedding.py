"""Token embeddings, and the output head that shares their matrix (section 3.4).

A token id picks a row of a (V, D) matrix, times √D. The rows start small (variance 1/D) because the same matrix turns
hidden states into logits, where unit-length rows give logits of size one; the √D brings them back to the size of the
positional encodings they are added to.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.config import ModelConfig
from clearhead.model.dropout import dropout
from clearhead.model.norm import build_norm
from clearhead.model.positions import LearnedPositions, SinusoidalPositions
from clearhead.model.trace import tap


def check_tokens(tokens: Tensor, name: str = "tokens") -> None:
    """Refuse what is not a (B, S) tensor of ids with at least one position."""
    if tokens.dim() != 2 or tokens.size(1) == 0:
        raise InputError(f"{name} must have the shape (batch, length) with length > 0, not {tuple(tokens.shape)}")
    if tokens.dtype not in (torch.int64, torch.int32):
        raise InputError(f"{name} must be token ids, int64 or int32, not {tokens.dtype}")


class TokenEmbedding(nn.Module):
    """Everything between the ids and the first layer: token, position, segment, norm, dropout."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.scale = math.sqrt(config.d_model) if config.embedding.scaled else 1.0
        self.positions: SinusoidalPositions | LearnedPositions | None = None
        if config.positions.kind == "sinusoidal":
            self.positions = SinusoidalPositions(config)
        elif config.positions.kind == "learned":
            self.positions = LearnedPositions(config)
        self.segments = None
        if config.embedding.segments:
            self.segments = nn.Parameter(torch.empty(config.embedding.segments, config.d_model))
        self.norm = build_norm(config) if config.embedding.norm else None
        self.dropout = config.dropout.embedding
        self.fused = config.kernels == "fused"

    def forward(
        self,
        tokens: Tensor,  # (B, S)
        positions: Tensor,  # (1, S) or (B, S): which position each token has
        longest: int,  # a bound on the positions, so that tables can grow without looking at them
        segments: Tensor | None = None,  # (B, S)
    ) -> Tensor:  # (B, S, D)
        x = tap("tokens", look_up(self.weight, tokens, "token ids"), "B S D") * self.scale
        if self.positions is not None:
            x = x + tap("positions", self.positions(positions, longest, x), "B S D")
        if self.segments is not None:
            segments = torch.zeros_like(tokens) if segments is None else segments
            x = x + look_up(self.segments, segments, "segment ids")
        elif segments is not None:
            raise InputError("segments were given, but this model has no segment embeddings (embedding.segments = 0)")
        if self.norm is not None:
            x = self.norm(x)
        return tap("embedding", dropout(x, self.dropout, self.training, self.fused), "B S D")


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


class VocabularyHead(nn.Module):
    """Hidden states to logits. Tied, it multiplies by the embedding matrix it is given and owns nothing but a bias."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = None if config.head.tied else nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.head.bias else None

    def matrix(self, embedding: TokenEmbedding) -> Tensor:
        """The (V, D) matrix of the logits, for a loss that multiplies by it piece by piece."""
        return embedding.weight if self.weight is None else self.weight

    def forward(self, hidden: Tensor, embedding: TokenEmbedding) -> Tensor:  # (B, S, D) -> (B, S, V)
        return tap("logits", F.linear(hidden, self.matrix(embedding), self.bias), "B S V")
