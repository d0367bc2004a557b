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
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model.config import ModelConfig, Scaling


def frequencies(width: int, base: float) -> Tensor:
    """base^(−2i/width) for i < width/2: how far each pair of dimensions turns from one position to the next."""
    return base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


def stretched(frequency: Tensor, scaling: Scaling) -> Tensor:
    """Frequencies for a context that is `factor` times longer than the one trained on: all of them slowed (Chen et
    al., 2023), or, as Llama 3.1 does, those that never turned round in it, and the ones between partly."""
    if scaling.kind == "linear":
        return frequency / scaling.factor
    turns = scaling.context * frequency / (2 * math.pi)  # in the old context
    kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return kept * frequency + (1 - kept) * frequency / scaling.factor


def angles(length: int, frequency: Tensor, start: int = 0) -> Tensor:
    """position · frequency for `length` positions from `start` on: (length, width/2), in float64."""
    return torch.arange(start, start + length, dtype=torch.float64)[:, None] * frequency


def sinusoids(length: int, width: int, base: float = 10_000.0, layout: str = "interleaved", start: int = 0) -> Tensor:
    """The table of section 3.5, (length, width): sin at 2i and cos at 2i + 1, or all sines and then all cosines."""
    angle = angles(length, frequencies(width, base), start)
    if layout == "interleaved":
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """Turn each pair of dimensions of x (B, H, S, d) by its angle; cos and sin broadcast to (B, H, S, d/2)."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
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


def token_positions(tokens: Tensor, real: Tensor | None = None) -> Tensor:
    """The position of each token of (B, T), counting real tokens: (B, T), or (1, T) where all rows are alike."""
    if real is not None:
        return (real.long().cumsum(-1) - 1).clamp(min=0)
    return torch.arange(tokens.size(1), device=tokens.device)[None]


def positions_in_documents(tokens: Tensor, real: Tensor | None, documents: Tensor) -> Tensor:
    """Positions (B, T) that start anew with each document of a packed row."""
    if documents.shape != tokens.shape or documents.dtype.is_floating_point:
        raise InputError(
            f"documents must number the document of each token, integers of shape {tuple(tokens.shape)}; "
            f"found {documents.dtype} {tuple(documents.shape)}"
        )
    counted = torch.ones_like(tokens) if real is None else real.long()
    along = counted.cumsum(-1) - counted  # real tokens before this one in the row
    first = torch.ones_like(documents, dtype=torch.bool)
    first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return along - torch.where(first, along, 0).cummax(-1).values  # … and in its document


class Table(nn.Module, ABC):
    """Rows for positions, made as far as needed and kept in the type and on the device they were last asked for.

    Not a buffer: they are no part of the weights, and `model.half()` must not round them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: Tensor | None = None

    @abstractmethod
    def make(self, length: int) -> Tensor:
        """The first `length` rows, in float64."""

    def upto(self, length: int, like: Tensor) -> Tensor:
        dtype, rows = torch.promote_types(like.dtype, torch.float32), self.rows
        if torch.compiler.is_exporting():  # the graph makes its own, of any length; its tensors are no numbers to keep
            return self.make(length).to(device=like.device, dtype=dtype)
        if rows is None or rows.size(0) < length or rows.dtype != dtype or rows.device != like.device:
            size = max(64, 1 << (length - 1).bit_length())
            rows = self.rows = self.make(size).to(device=like.device, dtype=dtype)
        return rows


class SinusoidalPositions(Table):
    """Looks positions up in the sinusoid table; has no parameters."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width, self.choices = config.d_model, config.positions

    def make(self, length: int) -> Tensor:
        return sinusoids(length, self.width, self.choices.base, self.choices.layout, self.choices.start)

    def forward(self, positions: Tensor, longest: int, like: Tensor) -> Tensor:  # (B, S) -> (B, S, D)
        return self.upto(longest, like)[positions].to(like.dtype)


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


class Rotary(Table):
    """The cosines and sines that turn queries and keys; has no parameters."""

    def __init__(self, config: ModelConfig, causal: bool = True) -> None:
        super().__init__()
        self.width, self.base, self.scaling = config.d_head, config.positions.base, config.positions.scaling

    def make(self, length: int) -> Tensor:
        frequency = frequencies(self.width, self.base)
        angle = angles(length, frequency if self.scaling is None else stretched(frequency, self.scaling))
        return torch.stack((angle.cos(), angle.sin()), dim=-1)

    def forward(self, queries: Tensor, keys: Tensor, like: Tensor) -> dict[str, Any]:
        """cos and sin for the positions (B, S) of the queries, each (B, 1, S, d/2); cached keys are turned already."""
        cos, sin = self.upto(keys.size(1), like)[queries].unsqueeze(1).unbind(-1)
        return {"rotation": (cos, sin)}


class Alibi(nn.Module):
    """The bias that makes far keys count less; has no parameters."""

    def __init__(self, config: ModelConfig, causal: bool = True) -> None:
        super().__init__()
        self.slopes = alibi_slopes(config.heads)  # not a buffer: `model.half()` must not round them

    def forward(self, queries: Tensor, keys: Tensor, like: Tensor) -> dict[str, Any]:
        """For positions (B, S) and (B, T) the bias (B, H, S, T)."""
        slopes = self.slopes.to(like.device, torch.promote_types(like.dtype, torch.float32))
        return {"bias": alibi_bias(queries, keys, slopes)}


# by `config.positions.kind`: what is added to the embedding, and what the attentions get (a field of AttentionInputs)
ADDED: dict[str, type[SinusoidalPositions | LearnedPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
}
RELATIVE: dict[str, type[Rotary | Alibi]] = {"rope": Rotary, "alibi": Alibi}
