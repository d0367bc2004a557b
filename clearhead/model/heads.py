"""Heads: what is made of the last hidden states. `config.head` chooses one; models hold it as `output`.

The vocabulary head turns states into logits of the next token and, tied, shares the embedding's matrix (section 3.4).
Encoder-only models have others: BERT's masked tokens, classes for each token, one vector for the whole sequence.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.config import ModelConfig
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.feedforward import PLAIN
from clearhead.model.norm import build_norm
from clearhead.model.trace import tap


class VocabularyHead(nn.Module):
    """Hidden states to logits. Tied, it multiplies by the embedding matrix it is given and owns nothing but a bias."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = None if config.head.tied else nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.head.bias else None

    def factors(self, hidden: Tensor, embedding: TokenEmbedding) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows (…, D), matrix (V, D) and bias of the logits, for a loss that multiplies them piece by piece."""
        return hidden, embedding.weight if self.weight is None else self.weight, self.bias

    def forward(self, hidden: Tensor, embedding: TokenEmbedding, real: Tensor | None = None) -> Tensor:
        """(B, S, D) -> (B, S, V)"""
        return tap("logits", F.linear(*self.factors(hidden, embedding)), "B S V")


class MaskedHead(VocabularyHead):
    """BERT's: works on the states once more before the vocabulary matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.transform = nn.Linear(config.d_model, config.d_model)
        self.activate = PLAIN["gelu" if config.activation == "swiglu" else config.activation]
        self.norm = build_norm(config)

    def factors(self, hidden: Tensor, embedding: TokenEmbedding) -> tuple[Tensor, Tensor, Tensor | None]:
        return super().factors(self.norm(self.activate(self.transform(hidden))), embedding)


class ClassHead(nn.Module):
    """Classes for each token, or (pooled) for the whole sequence, for which its first token speaks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.d_model, config.d_model) if config.head.kind == "pooled" else None
        self.classify = nn.Linear(config.d_model, config.head.classes) if config.head.classes else None

    def rows(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        """What is classified: the states (B, S, D), or one vector (B, D) for each sequence."""
        if self.transform is None:
            return hidden
        row = torch.arange(hidden.size(0), device=hidden.device)
        first = torch.zeros_like(row) if real is None else real.long().argmax(-1)  # past padding on the left
        return tap("pooled", torch.tanh(self.transform(hidden[row, first])), "B D")

    def factors(
        self, hidden: Tensor, embedding: TokenEmbedding, real: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows (…, D), matrix (classes, D) and bias of the logits."""
        if self.classify is None:
            raise InputError("head.kind = 'pooled' without head.classes gives no logits: there is nothing to train on")
        return self.rows(hidden, real), self.classify.weight, self.classify.bias

    def forward(self, hidden: Tensor, embedding: TokenEmbedding, real: Tensor | None = None) -> Tensor:
        """(B, S, D) -> (B, S, classes); pooled: (B, classes), or (B, D) if there are no classes."""
        rows = self.rows(hidden, real)
        return rows if self.classify is None else self.classify(rows)


class NoHead(nn.Module):
    """The hidden states themselves."""

    def factors(self, hidden: Tensor, embedding: TokenEmbedding) -> tuple[Tensor, Tensor, Tensor | None]:
        raise InputError("head.kind = 'none' without head.classes gives no logits: there is nothing to train on")

    def forward(self, hidden: Tensor, embedding: TokenEmbedding, real: Tensor | None = None) -> Tensor:
        return hidden


Head = VocabularyHead | ClassHead | NoHead


def build_head(config: ModelConfig) -> Head:
    """The head that the configuration asks for."""
    if config.head.kind in ("tokens", "pooled"):
        return ClassHead(config)
    if config.head.kind == "none":
        return NoHead()
    return MaskedHead(config) if config.head.kind == "masked" else VocabularyHead(config)
