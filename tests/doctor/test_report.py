"""What a finding says: the smallest counterexample, the watched line, and the cause with its wrong and right code."""

import json
import re

from clearhead.doctor.causes import known
from clearhead.doctor.examine import check
from clearhead.doctor.finding import Report
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.mutants import load, table


def examined(id: str, *probes: str) -> Report:
    mutant = table()[id]
    return check(describe(mutant.host, mutant.variant, load(mutant)), only=probes)


def test_the_counterexample_is_the_smallest_and_holds() -> None:
    (finding,) = examined("13", "future").findings
    found = re.search(r"shows it: (\[.*?\]), where token 1 becomes (\d+) and output 0 moves by", finding.message)
    assert found is not None
    assert len(json.loads(found.group(1))) == 2
    assert finding.evidence["depth_one_offsets"] == [1]
    assert finding.evidence["offsets"] == [1, 2]


def test_a_watched_operation_names_its_file_and_line() -> None:
    report = examined("6", "attention")
    assert "scores.softmax(dim=-2)" in report.findings[0].where[0]
    assert re.search(r"decoder\.py with bug 6>:\d+", report.findings[0].where[0])


def test_text_tells_findings_causes_and_what_was_not_asked() -> None:
    text = str(examined("13", "future", "schedule"))
    assert "ERROR  future.visible" in text
    assert "the causal mask's diagonal is off by one" in text
    assert "wrong  torch.ones(S, S).tril(diagonal=1)" in text
    assert "not armed (nothing is known about these)\n  schedule    no learning_rate() described" in text


def test_json_is_json() -> None:
    report = examined("13", "future", "schedule")
    told = json.loads(json.dumps(report.to_json()))
    assert told["healthy"] is False
    assert told["findings"][0]["causes"][0] == "mask-diagonal"
    assert told["causes"][0]["docs"] == "docs/doctor.md#mask-diagonal"
    assert told["not_armed"] == {"schedule": "no learning_rate() described"}


def test_every_cause_has_its_place_in_the_guide() -> None:
    from pathlib import Path

    guide = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    for cause, _, _ in known():
        assert f'<a id="{cause.id}"></a>' in guide, cause.id
