"""The product of a few rows with a matrix in eight bits, compiled by numba, the extra `clearhead[fast]`."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


@cache
def compiled() -> Callable[..., None]:
    """`multiply` as machine code. The sums may be taken in any order, so that eight numbers are added at once."""
    from numba import njit

    loop: Callable[..., None] = njit(cache=True, fastmath=True)(multiply)
    return loop


def multiply(rows: "Array", integers: "Array", scales: "Array", added: "Array", out: "Array") -> None:
    """out = rows (integers · scales)ᵀ + added; (k, in), (out, in), (out,), (out,), (k, out)."""
    for number in range(len(integers)):
        weights = integers[number]
        for row in range(len(rows)):
            x = rows[row]
            total = np.float32(0)
            for place in range(len(weights)):
                total += np.float32(weights[place]) * x[place]
            out[row, number] = total * scales[number] + added[number]
