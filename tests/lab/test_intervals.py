"""Intervals against a known one, and their coverage on numbers whose mean is known."""

import math
import random

from clearhead.lab.experiment import Cell, Results
from clearhead.lab.intervals import Interval, interval, short


def test_known_interval() -> None:
    # Student's t at 97.5% with four degrees of freedom is 2.7764451; the standard error is √(2.5 / 5)
    found = interval([1, 2, 3, 4, 5])
    assert found.mean == 3
    assert math.isclose(found.low, 1.03675684, abs_tol=5e-4)
    assert math.isclose(found.high, 4.96324316, abs_tol=5e-4)


def test_one_value_has_no_spread() -> None:
    assert interval([2.5]) == Interval(2.5, 2.5, 2.5)


def test_coverage() -> None:
    """Of many intervals from three normal numbers, 95% hold the true mean."""
    generator = random.Random(0)
    held = 0
    for _ in range(4000):
        found = interval([generator.gauss(7, 2) for _ in range(3)])
        held += found.low <= 7 <= found.high
    assert 0.94 < held / 4000 < 0.96


def test_differences_are_paired() -> None:
    """What a seed does to both arms cancels out: a constant difference has no interval."""
    cells = [Cell(arm, seed, {"loss": 10 * seed + shift}) for seed in (1, 2, 3) for arm, shift in (("a", 1), ("b", 0))]
    found = Results({}, cells).difference("a", "b", "loss")
    assert found == Interval(1, 1, 1)


def test_short_numbers() -> None:
    assert [short(value) for value in (0, 1234.5, 0.5, 0.00321, 1e-7)] == ["0", "1,234", "0.500", "0.0032", "1.00e-07"]


def test_a_mean_is_shown_as_far_as_its_interval_leaves_it_standing() -> None:
    shown = {(2.5964, 0.0562): "2.596 ± 0.056", (1234.5, 20.3): "1,234 ± 20", (3.2e-7, 1e-8): "3.2e-07 ± 1e-08"}
    for (mean, half), text in shown.items():
        assert str(Interval(mean, mean - half, mean + half)) == text
    assert str(Interval(120_000.0, 120_000.0, 120_000.0)) == "120,000"
    assert str(Interval(0.0, 0.0, 0.0)) == "0"
