"""A sample of `bench/faults/cache.py`: what is damaged in the cache is made again."""

from bench.faults import cache
from bench.faults.outcome import outcomes


def test_what_is_damaged_in_the_cache_is_made_again() -> None:
    found = outcomes(cache.trials(small=True))
    assert [f"{outcome.case}: {outcome.wrong}" for outcome in found if not outcome.survived] == []
    assert len(found) > 15
