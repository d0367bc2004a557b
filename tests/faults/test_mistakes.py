"""A sample of what users get wrong, and all of it in the long tests; `make bench-faults` makes the table."""

import pytest

from bench.faults.mistakes import run


def test_a_sample_of_mistakes_is_refused_in_one_line() -> None:
    outcomes = list(run(small=True))
    assert [outcome for outcome in outcomes if not outcome.survived] == []
    assert len(outcomes) > 40


@pytest.mark.long
def test_every_mistake_is_refused_in_one_line() -> None:
    outcomes = list(run(small=False))
    assert [outcome for outcome in outcomes if not outcome.survived] == []
    assert len(outcomes) > 300
    assert len({outcome.case for outcome in outcomes}) == len(outcomes)
