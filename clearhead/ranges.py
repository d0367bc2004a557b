"""Numbers that settings may have. A nan is neither below nor above anything, so no comparison refuses it: `peak = nan`
would train to the end and learn nothing. Every table of settings asks here first, then for its own ranges."""

import math
from dataclasses import fields
from typing import Any

from clearhead.errors import require

MOST = 2**63 - 1  # what a tensor can count
MOST_THREADS = 1024  # more than any machine gains from; with a hundred thousand, OpenMP ends in a segmentation fault


def require_numbers(settings: Any, where: str = "") -> None:
    """Refuse what is no number in any field of a dataclass: nan, infinities, and integers that no tensor can count."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, float):
            require(math.isfinite(value), f"{where}{field.name} must be a finite number, not {value}")
        elif isinstance(value, int):
            require(-MOST <= value <= MOST, f"{where}{field.name} must fit in 64 bits, not {_short(value)}")


def _short(value: int) -> str:
    return f"{float(value):.3g}" if abs(value) < 10**300 else "a number of more than 300 digits"
