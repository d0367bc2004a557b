"""What the queries of one stack may see, worked out once for all its layers.

A pass begins with facts about the input: which tokens are real, where documents end, how much a cache holds already.
From them come the positions (which count real tokens, so that padding on either side shifts nothing) and what the
layers need: the mask, ALiBi's bias and RoPE's rotation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.cache import KVCache
from clearhead.model.config import ModelConfig
from clearhead.model.masks import check_padding, combine, document_mask, padding_mask, window_mask
from clearhead.model.norm import at_least_float32
from clearhead.model.positions import Rotary, alibi_bias, alibi_slopes


@dataclass(frozen=True)
class Sight:
    """Handed to every attention of a stack. `causal` stands apart from `may_attend` so that no (S, T) mask is made
    where a kernel can do without."""

    may_attend: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False
    rotation: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Places:
    """Where the tokens of this pass and the keys they may see stand."""

    queries: Tensor  # (1, S) or (B, S): positions of this pass's tokens
    keys: Tensor  # (1, T) or (B, T): positions of all keys, those in the cache first
    longest: int  # a bound on the positions
    real: Tensor | None  # (B, T): which keys are real tokens; None: all
    documents: Tensor | None  # (B, T): numbered documents; None: one


def places(
    tokens: Tensor,
    padding: Tensor | None = None,
    documents: Tensor | None = None,
    cache: KVCache | None = None,
    name: str = "padding",  # what the caller calls it, should it be refused
) -> Places:
    """Positions of a pass over `tokens` (B, S): they count the real tokens of each document."""
    batch, length = tokens.shape
    if padding is not None:
        check_padding(padding, batch, length, name)
    past = 0
    if cache is not None:
        if documents is not None:
            raise InputError("documents are for packed training batches; a cache holds one document a row")
        if cache.batch != batch:
            raise InputError(f"the cache holds {cache.batch} rows, but the tokens have {batch}")
        past = cache.length
        padding = cache.note(padding, batch, length)  # now (B, T), or None while every token was real
    total = past + length
    if documents is not None:
        if documents.shape != tokens.shape or documents.dtype.is_floating_point:
            raise InputError(
                f"documents must number the document of each token, integers of shape {tuple(tokens.shape)}; "
                f"found {documents.dtype} {tuple(documents.shape)}"
            )
        counted = torch.ones_like(tokens) if padding is None else padding.long()
        along = counted.cumsum(-1) - counted  # real tokens before this one in the row
        first = torch.ones_like(documents, dtype=torch.bool)
        first[:, 1:] = documents[:, 1:] != documents[:, :-1]
        keys = along - torch.where(first, along, 0).cummax(-1).values  # … and in its document
    elif padding is not None:
        keys = (padding.long().cumsum(-1) - 1).clamp(min=0)
    else:
        keys = torch.arange(total, device=tokens.device)[None]
    return Places(keys[:, past:], keys, total, padding, documents)


class Lookout(nn.Module):
    """Turns places into sight, for the kind of positions and window the configuration asks for. No parameters."""

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.window = config.window
        self.rotary = Rotary(config) if config.positions.kind == "rope" else None
        self.slopes = alibi_slopes(config.heads) if config.positions.kind == "alibi" else None

    def forward(self, at: Places, like: Tensor) -> Sight:
        may_attend = None if at.real is None else padding_mask(at.real)
        if self.window is not None and self.window < at.longest:
            may_attend = combine(may_attend, window_mask(at.queries, at.keys, self.window))
        if at.documents is not None:
            may_attend = combine(may_attend, document_mask(at.documents, at.documents))
        bias = None
        if self.slopes is not None:
            bias = alibi_bias(at.queries, at.keys, self.slopes.to(like.device, at_least_float32(like)))
        rotation = None if self.rotary is None else self.rotary(at.queries, at.longest, like)
        return Sight(may_attend, bias, self.causal, rotation)
