"""Means over a few seeds, with an honest interval: Student's t, because three seeds say little about the spread.

Shares (of lists copied, of dates read) lie between 0 and 1, where "0.68 ± 0.91" is no interval. Theirs is Wilson's
(1927), which never leaves that range, with the number of trials that the spread between seeds leaves: lists copied by
one trained model stand or fall together (Korn and Graubard, 1998). The quantiles are a table, which is shorter than
the function that computes them.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

# the 97.5% quantile of Student's t with 1, 2, … degrees of freedom
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
NORMAL = 1.96


class Interval(NamedTuple):
    """A mean and its 95% interval; with one value alone, the interval is that value."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        """Two digits of the interval, and as many of the mean as it leaves standing; both ends where it is lopsided."""
        if abs(self.high + self.low - 2 * self.mean) > 1e-6 * max(self.half, 1e-12):
            places = max(2, min(4, 1 - math.floor(math.log10(self.half))))
            return f"{self.mean:.{places}f} ({self.low:.{places}f} to {self.high:.{places}f})"
        if self.half <= 5e-5 * abs(self.mean):
            return short(self.mean)
        if max(abs(self.mean), self.half) < 1e-3:
            return f"{self.mean:.1e} ± {self.half:.0e}"
        places = max(0, min(4, 1 - math.floor(math.log10(self.half))))
        return f"{self.mean:,.{places}f} ± {self.half:,.{places}f}"


def interval(values: Sequence[float]) -> Interval:
    """The mean of the values, and where the mean of very many would be with 95% confidence."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, mean, mean)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    quantile = T[count - 2] if count - 2 < len(T) else NORMAL
    half = quantile * spread / math.sqrt(count)
    return Interval(mean, mean - half, mean + half)


def share_interval(values: Sequence[float], trials: int) -> Interval:
    """The same of shares, each of so many trials: Wilson's interval, for as many trials as would spread like that."""
    count = len(values)
    share = math.fsum(values) / count
    effective, quantile = float(count * trials), NORMAL
    if count > 1:
        quantile = T[count - 2] if count - 2 < len(T) else NORMAL
        variance = math.fsum((value - share) ** 2 for value in values) / (count - 1) / count  # of the mean
        if variance * effective > share * (1 - share):  # they spread more than independent trials would
            effective = share * (1 - share) / variance
    shrink = 1 + quantile**2 / effective
    centre = (share + quantile**2 / (2 * effective)) / shrink
    half = quantile / shrink * math.sqrt(share * (1 - share) / effective + quantile**2 / (4 * effective**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def short(value: float) -> str:
    """Three digits that mean something, without an exponent where it can be helped."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        digits = 3 - 1 - math.floor(math.log10(abs(value))) if value else 0
        return f"{value:,.{max(0, min(4, digits))}f}"
    return f"{value:.2e}"
