"""Positions: attention alone sees a set, these make it a sequence.

Four ways, and what each breaks at long context (`clearhead lab run positions` measures it):

* sinusoidal (section 3.5): sines and cosines of each position are added to the embedding. PE(p + k) is a rotation of
  PE(p), so relative distance is a linear function. Extends to any length, but unseen positions are unseen inputs.
* learned (GPT-2, BERT): a row for each position. Past the last row there is nothing, so longer input is refused.
* rotary, RoPE (Su et al., 2021): queries and keys are rotated by their position; their product depends on distance
  only. Extends, but distances never trained on give products never trained on.
* ALiBi (Press et al., 2022): −m·|i − j| is added to each score. Extends gracefully, by hardly looking far back.

Tables are computed in float64 and used in at least float32: in bfloat16 the integers above 256 collide.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.config import ModelConfig
from clearhead.model.norm import at_least_float32


def angles(length: int, width: int, base: float) -> Tensor:
    """position / base^(2i/width) for position < length, i < width/2: (length, width/2), in float64."""
    frequencies = base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(length, dtype=torch.float64)[:, None] * frequencies


def sinusoids(length: int, width: int, base: float = 10_000.0, layout: str = "interleaved") -> Tensor:
    """The table of section 3.5, (length, width): sin at 2i and cos at 2i + 1, or all sines and then all cosines."""
    angle = angles(length, width, base)
    if layout == "interleaved":
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """Turn each pair of dimensions of x (B, H, S, d) by its angle; cos and sin broadcast to (B, H, S, d/2)."""
    wide = x.to(at_least_float32(x))
    if layout == "interleaved":
        even, odd = wide[..., 0::2], wide[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    else:
        first, second = wide.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return turned.to(x.dtype)


def alibi_slopes(heads: int) -> Tensor:
    """m of each head: 2^(−8/H), 2^(−16/H), … for a power of two, as in the ALiBi paper.

    For other H, its authors take the slopes of the next lower power of two, and fill up with every second slope of
    the next higher one.
    """
    lower = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / lower) for i in range(lower)]
    slopes += [2 ** (-8 * (i + 1) / (2 * lower)) for i in range(0, 2 * (heads - lower), 2)]
    return torch.tensor(slopes, dtype=torch.float64)


def alibi_bias(queries: Tensor, keys: Tensor, slopes: Tensor) -> Tensor:
    """−m·|i − j| for query positions (B, S) and key positions (B, T): (B, H, S, T)."""
    distance = (queries[:, None, :, None] - keys[:, None, None, :]).abs()  # (B, 1, S, T)
    return -slopes[None, :, None, None] * distance


class Table:
    """A table over positions that grows as needed, kept in the dtype and on the device it was last asked for.

    Not a buffer: it is no part of the weights, and `model.half()` must not round it.
    """

    def __init__(self, make: Callable[[int], Tensor]) -> None:
        self.make = make
        self.rows: Tensor | None = None

    def upto(self, length: int, like: Tensor) -> Tensor:
        dtype, rows = at_least_float32(like), self.rows
        if rows is None or rows.size(0) < length or rows.dtype != dtype or rows.device != like.device:
            size = max(64, 1 << (length - 1).bit_length())
            rows = self.rows = self.make(size).to(device=like.device, dtype=dtype)
        return rows


class SinusoidalPositions(nn.Module):
    """Looks positions up in the sinusoid table; has no parameters."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        choice = config.positions
        self.table = Table(lambda length: sinusoids(length, config.d_model, choice.base, choice.layout))

    def forward(self, positions: Tensor, longest: int, like: Tensor) -> Tensor:  # (B, S) -> (B, S, D)
        return self.table.upto(longest, like)[positions].to(like.dtype)


class LearnedPositions(nn.Module):
    """A trained row for each position, and a clear refusal past the last."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.positions.max_length is not None
        self.weight = nn.Parameter(torch.empty(config.positions.max_length, config.d_model))

    def forward(self, positions: Tensor, longest: int, like: Tensor) -> Tensor:  # (B, S) -> (B, S, D)
        rows = self.weight.size(0)
        if longest > rows and int(positions.max()) >= rows:
            raise InputError(
                f"learned positions end at {rows} tokens (positions.max_length = {rows}), "
                f"but this input reaches {int(positions.max()) + 1}"
            )
        return self.weight[positions]


class Rotary(nn.Module):
    """The cosines and sines that turn queries and keys; has no parameters."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layout = config.positions.layout
        width, base = config.d_head, config.positions.base
        # e^(i·angle) has both: its real part is the cosine, its imaginary part the sine
        self.table = Table(lambda length: torch.view_as_real(torch.exp(1j * angles(length, width, base))))

    def forward(self, positions: Tensor, longest: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for these positions (B, S), each (B, 1, S, d/2)."""
        cos, sin = self.table.upto(longest, like)[positions].unsqueeze(1).unbind(-1)
        return cos, sin
