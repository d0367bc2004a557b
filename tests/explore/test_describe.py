"""What the page is told of a run is true: the lines of code are there, and the lab's words are the lab's."""

from pathlib import Path

import pytest

from clearhead.explore.describe import CODE, VERDICTS, code_lines
from clearhead.explore.interventions import SWITCHES
from clearhead.lab.store import read_json

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", CODE)
def test_lines_of_code_stand_where_they_are_said_to_stand(name: str) -> None:
    found = code_lines(name)
    assert found is not None, f"{CODE[name][0]} has no line that starts with {CODE[name][1]!r} any more"
    lines = (ROOT / found["file"]).read_text(encoding="utf-8").splitlines()[found["line"] - 1 :]
    for shown, line in zip(found["text"].splitlines(), lines, strict=False):
        assert line.strip() == shown.strip()
    assert found["text"].splitlines()[-1].strip().startswith(CODE[name][2] or CODE[name][1])


@pytest.mark.parametrize("experiment", VERDICTS)
def test_verdicts_are_the_labs(experiment: str) -> None:
    claim, word, _ = VERDICTS[experiment]
    said = read_json(ROOT / "docs" / "lab" / f"{experiment}.json")["verdicts"]
    assert [one["word"] for one in said if one["claim"] == claim] == [word]


def test_every_switch_that_names_an_experiment_has_its_verdict() -> None:
    assert {switch.experiment for switch in SWITCHES.values() if switch.experiment} == set(VERDICTS)
