"""A sample of the kills of `make bench-faults`: resumed, a run is as if nothing had happened."""

import pytest

from bench.faults import kills
from bench.faults.outcome import outcomes


def test_killed_at_any_file_operation_a_run_resumes_as_if_nothing_had_happened() -> None:
    found = outcomes(kills.trials(small=True))
    assert len(found) == len(kills.SMALL)
    assert not [f"{outcome.case}: {outcome.wrong}" for outcome in found if not outcome.survived]


@pytest.mark.long
def test_all_kills() -> None:
    found = outcomes(kills.trials(small=False))
    assert len(found) > 300
    assert not [f"{outcome.case}: {outcome.wrong}" for outcome in found if not outcome.survived]
