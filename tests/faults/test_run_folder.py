"""A sample of `bench/faults/run_folder.py`: damaged files of a run under the commands that read them."""

from bench.faults import run_folder
from bench.faults.outcome import outcomes


def test_a_sample_of_damaged_files_is_survived() -> None:
    found = outcomes(run_folder.trials(small=True))
    assert [f"{outcome.case}: {outcome.wrong}" for outcome in found if not outcome.survived] == []
    assert len(found) >= 20
