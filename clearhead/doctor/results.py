"""What came out of a model: the tensor in whatever it returned, and how far two of them are apart."""

import math
from typing import Any

from torch import Tensor

from clearhead.errors import InputError


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference; infinite where only one of the two is a number."""
    if a.shape != b.shape:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    difference = (a.double() - b.double()).abs()
    same = (a == b) | (a.isnan() & b.isnan())
    return float(difference.masked_fill(same, 0.0).nan_to_num(nan=float("inf")).max())


def deviation(out: Tensor) -> float:
    """The standard deviation, or one where there is none: of a constant, or of what is no number."""
    size = float(out.double().std())
    return size if math.isfinite(size) and size > 0 else 1.0


def outputs(result: Any) -> Tensor:
    """The tensor in whatever a forward returns."""
    if isinstance(result, dict) and "logits" in result:
        result = result["logits"]
    for name in ("logits", "last_hidden_state"):
        if not isinstance(result, Tensor) and isinstance(getattr(result, name, None), Tensor):
            result = getattr(result, name)
    if isinstance(result, tuple | list) and result:
        result = result[0]
    if not isinstance(result, Tensor):
        raise InputError(f"forward returned {type(result).__name__}, not a tensor of outputs or something that has one")
    return result
