"""A sample of `bench/faults/run_folder.py`: damaged files of a run under the commands that read them."""

from bench.faults import run_folder


def test_a_sample_of_damaged_files_is_survived() -> None:
    outcomes = list(run_folder.run(small=True))
    assert [f"{outcome.case}: {outcome.wrong}" for outcome in outcomes if not outcome.survived] == []
    assert len(outcomes) >= 20
