"""A sample of `bench/faults/fuzz.py`: the same mutated inputs every time."""

from bench.faults import fuzz
from bench.faults.outcome import outcomes


def test_a_sample_of_mutated_inputs_is_survived() -> None:
    found = outcomes(fuzz.trials(small=True))
    assert [f"{outcome.case}: {outcome.wrong}" for outcome in found if not outcome.survived] == []
    assert len(found) == fuzz.SMALL
