"""Masks: who may look at whom. Boolean, True means *may attend*, and applied before the softmax.

What a mask means comes from the argument's name, never from its shape. Models and stacks take `padding` (B, T), True
where there is a real token; attention takes `may_attend`, either (S, T) or four-dimensional and broadcasting to
(B, H, S, T). The functions here turn one into the other and combine them. Anything else is refused: a mask that
broadcasts the wrong way does not crash, it quietly damages training.
"""

import torch
from torch import Tensor

from clearhead.errors import InputError


def causal_mask(queries: int, keys: int | None = None, device: torch.device | None = None) -> Tensor:
    """(S, T): query i sees keys up to its own. With more keys than queries (a cache), the last query sees them all."""
    keys = queries if keys is None else keys
    offset = keys - queries  # the first query stands at this key
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(offset)


def padding_mask(padding: Tensor) -> Tensor:
    """(B, T) -> (B, 1, 1, T): no query of a row sees the row's padding."""
    return padding[:, None, None, :]


def window_mask(queries: Tensor, keys: Tensor, window: int) -> Tensor:
    """(B, S), (B, T) positions -> (B, 1, S, T): keys fewer than `window` positions away, on either side."""
    distance = queries[:, None, :, None] - keys[:, None, None, :]
    return distance.abs() < window


def document_mask(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, S), (B, T) document numbers -> (B, 1, S, T): packed documents do not see each other."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def combine(*masks: Tensor | None) -> Tensor | None:
    """All of them at once: a key is seen only if every mask allows it."""
    result: Tensor | None = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else result & mask
    return result


def check_padding(padding: Tensor, batch: int, length: int, name: str = "padding") -> None:
    """Refuse a padding mask that is not boolean (B, T)."""
    if padding.dtype != torch.bool or tuple(padding.shape) != (batch, length):
        raise InputError(
            f"{name} must be a boolean tensor of shape (batch, length) = ({batch}, {length}), True at real tokens; "
            f"found {padding.dtype} {tuple(padding.shape)}"
        )


def check_may_attend(may_attend: Tensor, batch: int, heads: int, queries: int, keys: int) -> None:
    """Refuse a mask whose meaning would depend on luck in broadcasting."""
    full = (batch, heads, queries, keys)
    shape = tuple(may_attend.shape)
    fits = shape == (queries, keys) or (
        len(shape) == 4 and all(found in (1, wanted) for found, wanted in zip(shape, full, strict=True))
    )
    if may_attend.dtype != torch.bool or not fits:
        raise InputError(
            f"may_attend must be boolean (True = may attend), of shape (S, T) = ({queries}, {keys}) or "
            f"four-dimensional and broadcasting to (B, H, S, T) = {full}; found {may_attend.dtype} {shape}"
        )
