"""A baseline knows findings by what they say, not by where they stand, and tells which of them are gone."""

from pathlib import Path

from clearhead.doctor import baseline
from clearhead.doctor.finding import ERROR, Finding, Report


def report(*findings: Finding, passed: tuple[str, ...] = ()) -> Report:
    return Report("GPT", findings, passed, {})


LEAK = Finding("future.visible", ERROR, "moved by 2.4", where=("model.py:22: x = mask",))
MOVED = Finding("future.visible", ERROR, "moved by 2.5", where=("elsewhere/model.py:57:   x  = mask",))
OTHER_LINE = Finding("future.visible", ERROR, "moved by 2.4", where=("model.py:30: y = other",))


def test_a_finding_is_known_wherever_its_line_has_moved(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    assert baseline.write(path, report(LEAK)) == 1
    moved = baseline.compare(report(MOVED), baseline.read(path), ["future"])
    assert (moved.report.findings, moved.accepted, moved.gone) == ((), (MOVED,), ())
    other = baseline.compare(report(OTHER_LINE), baseline.read(path), ["future"])
    assert other.report.errors == (OTHER_LINE,)


def test_one_entry_accepts_one_finding_and_what_is_gone_is_told(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    baseline.write(path, report(LEAK))
    twice = baseline.compare(report(LEAK, MOVED), baseline.read(path), ["future"])
    assert twice.report.findings == (MOVED,)
    healed = baseline.compare(report(passed=("future",)), baseline.read(path), ["future"])
    assert healed.gone == (("GPT", "future.visible", "x = mask"),)
    assert baseline.compare(report(), baseline.read(path), ["batch"]).gone == ()  # its probe did not run


def test_models_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    baseline.write(path, report(LEAK))
    baseline.write(path, Report("BERT", (OTHER_LINE,), (), {}))
    baseline.write(path, report())  # healed
    assert baseline.read(path) == [("BERT", "future.visible", "y = other")]
