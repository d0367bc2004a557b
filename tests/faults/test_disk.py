"""A sample of the full, read-only and failing disks of `make bench-faults`: one clear line, and nothing is lost."""

import pytest

from bench.faults import disk
from bench.faults.outcome import outcomes


def test_a_full_read_only_or_failing_disk_is_named_and_costs_nothing() -> None:
    found = outcomes(disk.trials(small=True))
    assert len(found) == disk.SMALL * len(disk.FAULTS)
    assert not [f"{outcome.case}: {outcome.wrong}" for outcome in found if not outcome.survived]


@pytest.mark.long
def test_all_faults_of_the_disk() -> None:
    found = outcomes(disk.trials(small=False))
    assert len(found) > 600
    assert not [f"{outcome.case}: {outcome.wrong}" for outcome in found if not outcome.survived]
