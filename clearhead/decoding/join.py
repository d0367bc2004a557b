"""Two batches become one between two steps: how a text that has just come in is decoded together with those under way.

Their caches are laid side by side so that both end at the same slot; the shorter one gets padding on its left, which
positions do not count and nothing looks at. So no row notices but for rounding. What is padding in every row, after the
long ones have left, is cut off again: a batch that never empties would otherwise grow without end.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.decoding.fast_steps import SharedSteps
from clearhead.decoding.shared_cache import SharedCache
from clearhead.decoding.steps import ModelSteps, Steps
from clearhead.model import KVCache


def join(first: Steps, second: Steps) -> Steps:
    """The rows of both, those of `first` before those of `second`. Language models only, and no beams."""
    if isinstance(first, SharedSteps) and isinstance(second, SharedSteps):
        join_shared(first.cache, second.cache)
    else:
        assert isinstance(first, ModelSteps)
        assert isinstance(second, ModelSteps)
        assert first.cache is not None
        assert second.cache is not None
        join_plain(first.cache, second.cache)
        device = first.tokens.device  # what a cached search never looks at again, but selects from
        first.tokens = torch.zeros(first.rows + second.rows, 0, dtype=torch.long, device=device)
        first.real = first.tokens.bool()
    assert first.width == second.width == 1
    first.rows += second.rows
    return first


def at_the_end(parts: Sequence[Tensor], lengths: Sequence[int], whole: int, cut: int, dim: int) -> Tensor:
    """Tensors of different lengths along `dim` as one batch (dimension `dim` − 2) in which all of them end together;
    `cut` slots at the left of the whole are left out, where nothing is but padding."""
    moved = []
    for part, length in zip(parts, lengths, strict=True):
        part = part.narrow(dim, 0, length).movedim(dim, -1)
        moved.append(F.pad(part, (whole - length, 0))[..., cut:].movedim(-1, dim))
    return torch.cat(moved, dim=dim - 2)


def joint_real(reals: Sequence[Tensor]) -> tuple[Tensor, int, int]:
    """Which slots are real (B, T) of both batches together, the length before cutting, and what is cut."""
    whole = max(real.size(1) for real in reals)
    real = torch.cat([F.pad(one, (whole - one.size(1), 0)) for one in reals])
    cut = int(real.any(0).int().argmax())
    return real[:, cut:], whole, cut


def join_shared(first: SharedCache, second: SharedCache) -> None:
    caches, lengths = (first, second), (first.filled, second.filled)
    reals = [
        torch.ones(cache.batch, cache.filled, dtype=torch.bool) if cache.seen is None else cache.seen[:, 0]
        for cache in caches
    ]
    real, whole, cut = joint_real(reals)
    room = at_the_end([first.room, second.room], lengths, whole, cut, 4)
    first.batch, first.filled = len(real), whole - cut
    first.length = first.filled
    first.room = F.pad(room, (0, 0, 0, max(64, first.filled)))  # room to grow
    first.counted = torch.arange(first.room.size(4))[None]
    first.positions, first.pads, first.seen = first.counted[:, : first.filled], None, None
    if not bool(real.all()):
        first.pads = (~real).sum(-1, keepdim=True)
        first.positions = (first.positions - first.pads).clamp(min=0)
        first.seen = real[:, None]


def join_plain(first: KVCache, second: KVCache) -> None:
    caches, lengths = (first, second), (first.length, second.length)
    reals = []
    for cache in caches:
        keys = cache.self_attention[0].all()[0]
        everything = torch.ones(cache.batch, cache.length, dtype=torch.bool, device=keys.device)
        reals.append(everything if cache.real is None else cache.real[:, : cache.length])
    real, whole, cut = joint_real(reals)
    for ours, theirs in zip(first.self_attention, second.self_attention, strict=True):
        pairs = zip(ours.all(), theirs.all(), strict=True)
        ours.keys, ours.values = (at_the_end(pair, lengths, whole, cut, 2) for pair in pairs)
        ours.length = ours.capacity = whole - cut
    first.batch = len(real)
    first.real = None if bool(real.all()) else real
