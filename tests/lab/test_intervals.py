"""Intervals against a known one, and their coverage on numbers whose mean is known."""

import math
import random

from clearhead.lab.experiment import Cell, Results
from clearhead.lab.intervals import Interval, interval, share_interval, short


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


def test_known_interval_of_a_share() -> None:
    """Wilson's for 81 of 263: 0.2553 to 0.3662 (Newcombe, 1998, table I)."""
    found = share_interval([81 / 263], 263)
    assert math.isclose(found.low, 0.2553, abs_tol=5e-5)
    assert math.isclose(found.high, 0.3662, abs_tol=5e-5)
    assert share_interval([0.0] * 3, 50).low < 1e-9
    assert 0 < share_interval([0.0] * 3, 50).high < 0.2


def test_seeds_that_differ_widen_the_interval_of_a_share_within_0_and_1() -> None:
    """Three models that copy all, most and few of 400 lists are three observations, not 1,200."""
    alike, apart = share_interval([0.68, 0.68, 0.68], 400), share_interval([1.0, 0.78, 0.26], 400)
    assert alike.half < 0.06
    assert 0 <= apart.low < 0.3
    assert 0.9 < apart.high <= 1
    assert str(apart) == f"0.68 ({apart.low:.2f} to {apart.high:.2f})"


def test_coverage_of_shares() -> None:
    """Of many intervals from three seeds of 50 trials, whose chances differ by seed, at least 95% hold the mean."""
    generator, held = random.Random(0), 0
    for _ in range(2000):
        chances = [generator.betavariate(6, 2) for _ in range(3)]
        found = share_interval([sum(generator.random() < chance for _ in range(50)) / 50 for chance in chances], 50)
        held += found.low <= 0.75 <= found.high
    assert 0.945 < held / 2000 < 0.995
