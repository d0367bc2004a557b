"""A sample of the full, read-only and failing disks of `make bench-faults`: one clear line, and nothing is lost."""

import pytest

from bench.faults import disk


def test_a_full_read_only_or_failing_disk_is_named_and_costs_nothing() -> None:
    outcomes = list(disk.run(small=True))
    assert len(outcomes) == disk.SMALL * len(disk.FAULTS)
    assert not [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if not outcome.survived]


@pytest.mark.long
def test_all_faults_of_the_disk() -> None:
    outcomes = list(disk.run(small=False))
    assert len(outcomes) > 600
    assert not [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if not outcome.survived]
