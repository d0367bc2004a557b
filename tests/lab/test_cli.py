"""`clearhead lab` from the outside: list, run, run again, report."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clearhead.cli.commands.lab import app
from clearhead.errors import InputError
from clearhead.lab import runner
from clearhead.lab.catalogue import names
from clearhead.lab.experiment import Experiment

RUNNER = CliRunner()


def test_list_names_every_experiment() -> None:
    shown = RUNNER.invoke(app, ["list"])
    assert shown.exit_code == 0
    assert sorted(line.split()[0] for line in shown.stdout.splitlines()) == names()


def test_run_and_report(tmp_path: Path) -> None:
    command = ["run", "kv-cache", "--quick", "--seeds", "1", "--jobs", "1", "--folder", str(tmp_path)]
    first = RUNNER.invoke(app, command)
    assert first.exit_code == 0, first.output
    assert first.stdout.startswith("kv-cache: ")
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert len(files) == 4
    assert RUNNER.invoke(app, command).stdout == first.stdout  # from what is stored
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == files
    written = RUNNER.invoke(app, ["report", "--folder", str(tmp_path), "--out", str(tmp_path / "out")])
    assert written.exit_code == 0, written.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"lab", "lab.html", "lab.md"}
    assert (tmp_path / "out" / "lab" / "kv-cache.svg").read_text().lstrip().startswith("<?xml")


def test_one_that_cannot_run_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of measuring should not be lost to the first experiment that this machine cannot do."""

    def refuse(experiment: Experiment, *rest: Any) -> None:
        raise InputError(f"no compiler for {experiment.name}")

    monkeypatch.setattr(runner, "run", refuse)
    ran = RUNNER.invoke(app, ["run", "memory", "numerics", "--quick", "--folder", str(tmp_path)])
    assert isinstance(ran.exception, InputError)
    assert "could not run 2 of 2" in str(ran.exception)
    assert "memory: no compiler for memory; numerics: no compiler for numerics" in str(ran.exception)


def test_an_unknown_experiment_is_refused(tmp_path: Path) -> None:
    refused = RUNNER.invoke(app, ["run", "warmup", "--folder", str(tmp_path)])
    assert isinstance(refused.exception, InputError)
    assert "did you mean 'warm-up'" in str(refused.exception)
