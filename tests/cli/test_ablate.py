"""`clearhead ablate`: a table, lines of JSON, a picture; and refusals in one line."""

import json
from pathlib import Path

import pytest

from clearhead.decoding.load import load
from tests.cli.conftest import Call


def test_a_table_of_heads_and_layers(call: Call, run: Path) -> None:
    status, out, _ = call("ablate", run, "the cat", "--target", "the mat")
    lines = out.decode().splitlines()
    assert status == 0
    assert lines[0].startswith("the cat  →  the mat</s>   log-probability −")
    assert [line.split()[0] for line in lines if line.startswith(("encoder.", "decoder."))] == [
        *("encoder.1.self", "encoder.2.self"),
        *("decoder.1.self", "decoder.1.cross", "decoder.2.self", "decoder.2.cross"),
        *("encoder.1", "encoder.2", "decoder.1", "decoder.2"),
    ]
    assert "Worth most: " in lines[-1]


def test_json_adds_up(call: Call, run: Path) -> None:
    status, out, _ = call("ablate", run, "the cat", "--target", "the mat", "--json")
    scored, *rows = map(json.loads, out.decode().splitlines())
    assert status == 0
    assert "".join(scored["tokens"]) == "the mat</s>"
    assert scored["log_prob"] == pytest.approx(load(run).score(["the cat"], ["the mat"])[0].log_prob, abs=1e-4)
    assert len(rows) == 16
    for row in rows:
        assert len(row["by_token"]) == len(scored["tokens"])
        assert row["worth"] == pytest.approx(sum(row["by_token"]))


def test_its_own_continuation(call: Call, text_run: Path) -> None:
    status, out, _ = call("ablate", text_run, "the cat", "--max-tokens", "3", "--json")
    assert status == 0
    assert len(json.loads(out.decode().splitlines()[0])["tokens"]) <= 3


def test_a_picture(call: Call, run: Path, tmp_path: Path) -> None:
    status, _, err = call("ablate", run, "the cat", "-o", tmp_path / "worth.svg")
    assert (status, err) == (0, f"wrote {tmp_path / 'worth.svg'}\n")
    drawn = (tmp_path / "worth.svg").read_text()
    assert "decoder.2.cross" in drawn
    status, _, err = call("ablate", run, "the cat", "-o", tmp_path / "worth.svg")
    assert status == 2
    assert "is already there" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["   "], "TEXT is empty"),
        (["the", "-o", "x.html"], "cannot draw x.html: its name must end in one of .png, .svg, .pdf"),
        (["t" * 3000], "TEXT has 3,000 letters: at most 2,000 are read"),
    ],
)
def test_refuses_in_one_line(call: Call, run: Path, words: list[str], said: str) -> None:
    status, out, err = call("ablate", run, *words)
    assert (status, out) == (2, b"")
    assert said in err
    assert err.count("\n") == 1
