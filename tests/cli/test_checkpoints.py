"""`clearhead checkpoints` from the outside, on a run that training left."""

import json
import shutil
from pathlib import Path

import pytest

from clearhead.run import Run
from clearhead.training.checkpoint import average
from clearhead.training.session import train
from tests.cli.conftest import Call
from tests.training import small


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Validated at steps 10, 20 and 24, kept: the last three of every fourth, and the best."""
    folder = tmp_path_factory.mktemp("runs") / "copy"
    train(small.recipe(), folder, quiet=True)
    average(Run(folder), 2)
    return folder


def test_json_has_a_line_for_each_checkpoint(call: Call, finished: Path) -> None:
    status, out, err = call("checkpoints", finished, "--json")
    assert (status, err) == (0, "")
    found = {row["name"]: row for row in map(json.loads, out.decode().splitlines())}
    assert list(found) == ["step_00000016", "step_00000020", "step_00000024", "average"]
    metrics = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["validation"]["loss"] for row in metrics if "validation" in row}
    assert {row["step"]: row["loss"] for row in found.values() if row["name"] != "average"} == {
        16: None,
        20: losses[20],
        24: losses[24],
    }
    for mark in ("best", "latest"):
        assert [name for name, row in found.items() if row[mark]] == [(finished / mark).read_text().strip()]
    for name, row in found.items():
        folder = finished / "checkpoints" / name
        assert row["bytes"] == sum(path.stat().st_size for path in folder.iterdir())


def test_the_table_shows_the_same(call: Call, finished: Path) -> None:
    status, out, err = call("checkpoints", finished)
    assert (status, err) == (0, "")
    head, *rows = [line.split() for line in out.decode().splitlines()]
    assert head == ["checkpoint", "step", "size", "validation", "loss"]
    assert [row[:2] for row in rows] == [
        *([f"step_{step:08d}", str(step)] for step in (16, 20, 24)),
        ["average", "24"],
    ]
    assert rows[0][4:] == ["–"]
    assert rows[2][4:] == [f"{Run(finished).inventory()[2].loss:.4f}", "best,", "latest"]


def test_a_damaged_checkpoint_is_listed_and_explained(call: Call, finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "checkpoints/step_00000020/state.json").write_text("{")
    status, out, _ = call("checkpoints", run)
    lines = out.decode().splitlines()
    assert status == 0
    assert [line.split()[0] for line in lines if "  damaged" in line] == ["step_00000020"]
    assert "step_00000020 is damaged: state.json is not JSON" in lines[-1]


def test_a_run_without_checkpoints_and_no_run_at_all(call: Call, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    assert call("checkpoints", tmp_path) == (0, b"", f"{tmp_path} has no checkpoint yet\n")
    assert call("checkpoints", tmp_path, "--json") == (0, b"", "")
    status, out, err = call("checkpoints", tmp_path / "nowhere")
    assert (status, out, err.count("\n")) == (2, b"", 1)
    assert err.startswith("clearhead: error: no run at")
