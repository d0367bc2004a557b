"""Masks: who may look at whom. Boolean, True means *may attend*, and applied before the softmax.

What a mask means comes from the argument's name, never from its shape. Models and stacks take `real` (B, T), True
where there is a real token and not padding; attention takes `may_attend`, either (S, T) or four-dimensional and
broadcasting to (B, H, S, T). The functions here turn one into the other and combine them. Anything else is refused: a
mask that broadcasts the wrong way does not crash, it quietly damages training.
"""

import torch
from torch import Tensor

from clearhead.errors import InputError


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """(S, T): query i sees keys up to its own. With more keys than queries (a cache), the last query sees them all."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def padding_mask(real: Tensor, tokens: Tensor, name: str = "real") -> Tensor:
    """(B, T), True at the real ones of the tokens (B, T) -> (B, 1, 1, T): no query of a row sees the row's padding."""
    if real.dtype != torch.bool or real.shape != tokens.shape[:2]:
        batch, length = tokens.shape[:2]
        raise InputError(
            f"{name} must be a boolean tensor of shape (batch, length) = ({batch}, {length}), True at real tokens; "
            f"found {real.dtype} {tuple(real.shape)}"
        )
    return real[:, None, None, :]


def window_mask(queries: Tensor, keys: Tensor, window: int) -> Tensor:
    """(B, S), (B, T) positions -> (B, 1, S, T): keys fewer than `window` positions away, on either side."""
    distance = queries[:, None, :, None] - keys[:, None, None, :]
    return distance.abs() < window


def document_mask(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, S), (B, T) document numbers -> (B, 1, S, T): packed documents do not see each other."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def combine(first: Tensor | None, second: Tensor) -> Tensor:
    """Both at once: a key is seen only if each mask allows it."""
    return second if first is None else first & second


def check_may_attend(may_attend: Tensor | None, scores: tuple[int, ...]) -> None:
    """Refuse a mask for scores of the shape (B, H, S, T) whose meaning would depend on luck in broadcasting."""
    if may_attend is None:
        return
    try:
        fits = may_attend.expand(scores).dtype == torch.bool
    except RuntimeError:
        fits = False
    if not fits or (may_attend.dim() != 4 and may_attend.shape != scores[2:]):
        raise InputError(
            f"may_attend must be boolean (True = may attend), of shape (S, T) = {scores[2:]} or "
            f"four-dimensional and broadcasting to (B, H, S, T) = {scores}; "
            f"found {may_attend.dtype} {tuple(may_attend.shape)}"
        )
