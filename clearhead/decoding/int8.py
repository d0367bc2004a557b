"""Linear maps with weights in eight bits: at a step of decoding, reading the weights is what takes the time.

Each row of a matrix is stored as integers from −127 to 127 and one scale, its largest value / 127 (as in LLM.int8,
Dettmers et al., 2022, section 3, but the inputs stay floating-point, so that nothing saturates). For a few rows of
input the product is a loop compiled by numba, the extra `clearhead[fast]`; for more, reading the weights no longer
decides, and the same rounded weights are multiplied in 32 bits.
"""

from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from clearhead.decoding.compiled import compiled
from clearhead.decoding.prepared import LARGE, PreparedLinear
from clearhead.errors import InputError

Precision = Literal["float32", "int8"]  # of the weights while decoding
ROWS = 4  # of input: up to here the compiled loop is faster


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse what is no precision, or cannot be had here."""
    if precision not in get_args(Precision):
        raise InputError(f"precision is {precision!r}; wanted: {' or '.join(get_args(Precision))}")
    if precision == "int8" and device.type != "cpu":
        raise InputError(f"precision int8 is for the CPU, not for {device.type}")
    if precision == "int8" and find_spec("numba") is None:
        raise InputError("precision int8 needs numba: pip install 'clearhead[fast]'")


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:  # (out, in) -> (out, in) int8, (out,) float32
    """Eight bits for each number and a scale for each row."""
    scales = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return (weight / scales[:, None]).round().to(torch.int8), scales


class Int8Linear(PreparedLinear):
    """x Wᵀ + b with W in eight bits; `weight` is what they stand for."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        integers, scales = rounded(weight)
        super().__init__(integers.float() * scales[:, None], bias)
        added = torch.zeros_like(scales) if bias is None else bias
        self.multiply = compiled()
        self.integers, self.scales, self.added = (x.contiguous().numpy() for x in (integers, scales, added))

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() > ROWS * self.width:
            return super().__call__(x)
        made = x.new_empty(*x.shape[:-1], len(self.scales))
        rows, out = x.reshape(-1, self.width).numpy(), made.view(-1, len(self.scales)).numpy()
        self.multiply(rows, self.integers, self.scales, self.added, out)
        return made


def prepared_int8(weight: Tensor, bias: Tensor | None) -> PreparedLinear:
    """In eight bits where the matrix is large enough for that to pay."""
    pays = weight.numel() >= LARGE and weight.dtype == torch.float32
    return Int8Linear(weight, bias) if pays else PreparedLinear(weight, bias)
