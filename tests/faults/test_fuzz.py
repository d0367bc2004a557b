"""A sample of `bench/faults/fuzz.py`: the same mutated inputs every time."""

from bench.faults import fuzz


def test_a_sample_of_mutated_inputs_is_survived() -> None:
    outcomes = list(fuzz.run(small=True))
    assert [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if not outcome.survived] == []
    assert len(outcomes) == fuzz.SMALL
