"""A sample of the kills of `make bench-faults`: resumed, a run is as if nothing had happened."""

import pytest

from bench.faults import kills


def test_killed_at_any_file_operation_a_run_resumes_as_if_nothing_had_happened() -> None:
    outcomes = list(kills.run(small=True))
    assert len(outcomes) == len(kills.SMALL)
    assert not [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if not outcome.survived]


@pytest.mark.long
def test_all_kills() -> None:
    outcomes = list(kills.run(small=False))
    assert len(outcomes) > 300
    assert not [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if not outcome.survived]
