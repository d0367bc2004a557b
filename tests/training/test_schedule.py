"""Learning rates against the paper's formula and by their ends."""

import math
from dataclasses import replace

import pytest

from clearhead.errors import InputError
from clearhead.training.config import TrainingSettings
from clearhead.training.schedule import learning_rate


@pytest.mark.parametrize("n", [1, 2, 399, 400, 401, 10_000])
def test_noam_is_the_formula_of_section_5_3(n: int) -> None:
    settings = TrainingSettings(schedule="noam", warmup=400, factor=2.0)
    expected = 2.0 * 512**-0.5 * min(n**-0.5, n * 400**-1.5)
    assert learning_rate(n, settings, 512) == pytest.approx(expected, rel=1e-12)


def test_noam_by_peak_has_that_peak_at_the_end_of_the_warmup_and_nowhere_else() -> None:
    settings = TrainingSettings(schedule="noam", warmup=50, peak=1e-3)
    rates = [learning_rate(n, settings, 64) for n in range(1, 200)]
    assert max(rates) == rates[49] == pytest.approx(1e-3)
    assert rates[:50] == sorted(rates[:50])
    assert rates[49:] == sorted(rates[49:], reverse=True)


def test_cosine_runs_from_peak_to_final() -> None:
    settings = TrainingSettings(schedule="cosine", warmup=100, peak=1e-3, final=0.1, steps=2000)
    assert learning_rate(100, settings, 64) == pytest.approx(1e-3)
    assert learning_rate(1050, settings, 64) == pytest.approx((1e-3 + 1e-4) / 2)
    assert learning_rate(2000, settings, 64) == pytest.approx(1e-4)
    assert learning_rate(3000, settings, 64) == pytest.approx(1e-4)  # a run that goes on stays there


def test_constant_is_level_after_its_warmup() -> None:
    settings = TrainingSettings(schedule="constant", warmup=10, peak=3e-4)
    assert [learning_rate(n, settings, 8) for n in (10, 11, 10_000)] == [3e-4] * 3
    assert learning_rate(5, settings, 8) == pytest.approx(1.5e-4)


@pytest.mark.parametrize("schedule", ["noam", "cosine", "constant"])
@pytest.mark.parametrize("warmup", [0, 1, 4000])
def test_the_first_update_is_not_wasted(schedule: str, warmup: int) -> None:
    settings = TrainingSettings(schedule=schedule, warmup=warmup, peak=1.0, steps=10_000)  # type: ignore[arg-type]
    first = learning_rate(1, settings, 64)
    assert math.isclose(first, 1.0 / max(1, warmup), rel_tol=1e-6)


def test_without_warmup_noam_begins_where_a_warmup_of_one_update_does() -> None:
    none, one = (TrainingSettings(schedule="noam", warmup=warmup, factor=1.0) for warmup in (0, 1))
    assert [learning_rate(n, none, 64) for n in (1, 2, 9)] == [learning_rate(n, one, 64) for n in (1, 2, 9)]
    assert learning_rate(1, none, 64) == pytest.approx(1 / 8)


@pytest.mark.parametrize("schedule", ["noam", "constant"])
def test_a_cooldown_changes_the_last_steps_alone(schedule: str) -> None:
    settings = TrainingSettings(schedule=schedule, warmup=10, peak=1.0, steps=1000)  # type: ignore[arg-type]
    cooled = replace(settings, cooldown=99)
    for n in (1, 10, 900, 901):
        assert learning_rate(n, cooled, 64) == learning_rate(n, settings, 64)
    for n, share in ((951, 0.5), (991, 0.1), (1000, 0.01), (1001, 0.01)):  # a run that goes on still learns a little
        assert learning_rate(n, cooled, 64) == pytest.approx(share * learning_rate(n, settings, 64))
    with pytest.raises(InputError, match="cosine"):
        replace(cooled, schedule="cosine")
