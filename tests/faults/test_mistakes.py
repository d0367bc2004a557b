"""A sample of what users get wrong, and all of it in the long tests; `make bench-faults` makes the table."""

import pytest

from bench.faults.mistakes import trials
from bench.faults.outcome import outcomes


def test_a_sample_of_mistakes_is_refused_in_one_line() -> None:
    found = outcomes(trials(small=True))
    assert [outcome for outcome in found if not outcome.survived] == []
    assert len(found) > 40


@pytest.mark.long
def test_every_mistake_is_refused_in_one_line() -> None:
    found = outcomes(trials(small=False))
    assert [outcome for outcome in found if not outcome.survived] == []
    assert len(found) > 300
    assert len({outcome.case for outcome in found}) == len(found)
