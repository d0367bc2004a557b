"""Values as a learner can read them: small tensors whole, large ones by shape and the first number that is wrong."""

from typing import Any

import torch
from torch import Tensor

MOST = 24  # numbers of a tensor that are shown


def number(value: float) -> str:
    text = f"{value:.4g}"
    return "0" if text == "-0" else text


def nested(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(nested(item) for item in value) + "]"
    return number(value) if isinstance(value, float) else str(value)


def show(value: Any) -> str:
    """Any value, on one line."""
    if isinstance(value, Tensor):
        if value.dim() == 0:
            return nested(value.item())
        if value.numel() <= MOST:
            return nested(value.tolist())
        kind = "" if value.is_floating_point() else " of booleans" if value.dtype == torch.bool else " of integers"
        return f"a tensor {tuple(value.shape)}{kind}"
    if isinstance(value, BaseException):
        lines = str(value).strip().splitlines() or [""]
        return f"{type(value).__name__}: {lines[0]}".rstrip(": ")
    if isinstance(value, float):
        return number(value)
    if isinstance(value, tuple) and any(isinstance(item, Tensor) for item in value):
        return ", ".join(show(item) for item in value)
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "..."


def both(got: Any, wanted: Any, where: str = "") -> tuple[str, str]:
    """Two values that differ, so that one sees how."""
    label = f"{where}: " if where else ""
    if isinstance(got, Tensor) and isinstance(wanted, Tensor):
        if (got.dtype == torch.bool) != (wanted.dtype == torch.bool):
            return (
                f"{label}a tensor of {kind(got)} {tuple(got.shape)}",
                f"a tensor of {kind(wanted)} {tuple(wanted.shape)}",
            )
        if got.shape != wanted.shape:
            return f"{label}shape {tuple(got.shape)}", f"shape {tuple(wanted.shape)}"
        if wanted.numel() > MOST:
            index = first_difference(got, wanted)
            place = "[" + ", ".join(map(str, index)) + "]"
            return (
                f"{label}{show(got)}; at {place} {nested(got[index].item())}",
                f"at {place} {nested(wanted[index].item())}",
            )
    if isinstance(wanted, Tensor) and not isinstance(got, Tensor):
        if isinstance(got, BaseException):
            return show(got), f"a tensor {tuple(wanted.shape)}"
        seen = (
            "nothing (None): is there a return?"
            if got is None and not where
            else "none"
            if got is None
            else f"{type(got).__name__} {show(got)}"
        )
        return f"{label}{seen}", f"a tensor {tuple(wanted.shape)}"
    if got is None:
        return f"{label}nothing (None): is there a return?" if not where else f"{label}none", show(wanted)
    return f"{label}{show(got)}", show(wanted)


def kind(x: Tensor) -> str:
    return "booleans" if x.dtype == torch.bool else "integers" if not x.is_floating_point() else "numbers"


def first_difference(got: Tensor, wanted: Tensor) -> tuple[int, ...]:
    """Where they differ first by more than a little."""
    if not wanted.is_floating_point():
        wrong = got != wanted
    else:
        gap = (got.double() - wanted.double()).abs()
        wrong = ~(gap <= 0.1 * gap[gap.isfinite()].max()) if gap.isfinite().any() else ~gap.isfinite()
    if not wrong.any():
        wrong = got != wanted
    return tuple(wrong.nonzero()[0].tolist())
