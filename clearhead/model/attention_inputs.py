"""What the attentions of a stack need besides x: who may look at whom, and how positions enter.

It is the same for all layers, so it is worked out once a pass, from facts about the input: which tokens are real, where
documents end, how much a cache holds already. Positions count real tokens, so padding on either side shifts nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.cache import KVCache
from clearhead.model.config import ModelConfig
from clearhead.model.masks import combine, document_mask, padding_mask, window_mask
from clearhead.model.positions import RELATIVE, positions_in_documents, token_positions
from clearhead.model.trace import tap


@dataclass(frozen=True)
class AttentionInputs:
    """Made by each stack's `AttentionInputsBuilder`, handed to every attention of the stack."""

    may_attend: Tensor | None = None  # broadcasts to (B, H, S, T); True = may look; None: at everything
    causal: bool = False  # apart from `may_attend`, so that no (S, T) mask is made where a kernel can do without
    positions: Tensor | None = None  # (1, S) or (B, S): where the queries stand, for the embedding
    longest: int = 0  # a bound on the positions, so that tables can grow without looking at them
    bias: Tensor | None = None  # added to the scores: ALiBi
    rotation: tuple[Tensor, Tensor] | None = None  # cosines and sines that turn queries and keys: RoPE


def check_tokens(tokens: Tensor, name: str) -> None:
    """Refuse what is not a (B, S) tensor of ids with at least one position."""
    if tokens.dim() != 2 or tokens.size(1) == 0 or tokens.dtype not in (torch.int64, torch.int32):
        raise InputError(
            f"{name} must be token ids, int64 or int32, of the shape (batch, length) with length > 0; "
            f"found {tokens.dtype} {tuple(tokens.shape)}"
        )


class AttentionInputsBuilder(nn.Module):
    """Called by the model at the start of a pass, once for each stack."""

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.causal, self.window = causal, config.window
        kind = config.positions.kind
        self.relative = RELATIVE[kind](config, causal) if kind in RELATIVE else None

    def forward(
        self,
        tokens: Tensor,  # (B, S)
        like: Tensor,  # the tables come on its device, and in its type if that is wider than float32
        real: Tensor | None = None,  # (B, S), True at real tokens; None: all
        documents: Tensor | None = None,  # (B, S) numbers: packed documents do not see each other
        cache: KVCache | None = None,
        side: str = "",  # what the caller puts before the names of tokens and real: source_, target_
    ) -> AttentionInputs:
        check_tokens(tokens, f"{side}tokens")
        causal, may_attend = self.causal, None if real is None else padding_mask(real, tokens, f"{side}real")
        if cache is not None:
            keys, may_attend, causal = cache.admit(tokens, real, documents)
        elif documents is not None:
            keys = positions_in_documents(tokens, real, documents)
            may_attend = combine(may_attend, document_mask(documents, documents))
        else:
            keys = token_positions(tokens, real)
        positions, longest = keys[:, -tokens.size(1) :], keys.size(1)  # the newest keys are those of the queries
        if self.window is not None and self.window < longest:
            may_attend = combine(may_attend, window_mask(positions, keys, self.window))
        relative = {} if self.relative is None else self.relative(positions, keys, like)
        if "bias" in relative:
            relative["bias"] = tap("bias", relative["bias"], "B H S T")
        if "rotation" in relative:
            cos, sin = relative["rotation"]
            relative["rotation"] = tap("cos", cos, "B H S d/2"), tap("sin", sin, "B H S d/2")
        return AttentionInputs(may_attend, causal, positions, longest, **relative)
