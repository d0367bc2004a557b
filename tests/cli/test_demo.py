"""The first five minutes: `clearhead demo` in a short form, started as `make demo` starts it, and what it suggests."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

from clearhead.cli.commands.demo import Reader, chosen, marked
from clearhead.cli.invocation import invocation
from clearhead.data.batch import Example
from clearhead.decoding.attention import CROSS, Panel

SHORT = "--set training.steps=30 --set training.threads=1 --set data.examples=2000 --set data.held_out=40"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment in .venv, in which `clearhead` is installed but not on the path."""
    folder = tmp_path_factory.mktemp("home")
    venv.create(folder / ".venv", symlinks=True)
    script = folder / ".venv" / "bin" / "clearhead"
    script.write_text(f"#!{script.with_name('python')}\nfrom clearhead.cli.main import main\nmain()\n")
    script.chmod(0o755)
    return folder


def typed(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A line typed into a shell that stands in this folder."""
    root = str(Path(__file__).resolve().parents[2])
    # the environment itself is empty: what is installed here is lent to it
    lent = {"PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)]), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    environment = {**os.environ, **lent, "OMP_NUM_THREADS": "1"}
    return subprocess.run(["bash", "-c", line], cwd=home, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def shown(home: Path) -> str:
    done = typed(f".venv/bin/clearhead demo {SHORT}", home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def next_steps(shown: str) -> list[str]:
    lines = shown.partition("Try next:\n")[2].splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


def test_it_shows_examples_and_writes_the_pictures_it_names(home: Path, shown: str) -> None:
    assert shown.count("  ←  ") == 12
    assert "of 40 right" in shown
    assert "on average over 40 unseen dates" in shown
    named = [line.strip() for line in shown.partition("Pictures:\n")[2].splitlines()[:2]]
    assert named == ["runs/demo/plots/where-it-looks.png", "runs/demo/plots/training.png"]
    for name in named:
        assert (home / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_every_next_step_runs_as_printed(home: Path, shown: str) -> None:
    """But for the page, which is served until interrupted, and the training; each has a test of its own."""
    steps = next_steps(shown)
    verbs = ["translate", "explore", "attention", "evaluate", "shapes", "train"]
    assert [step.partition(".venv/bin/clearhead ")[2].split()[0] for step in steps] == verbs
    for step in [steps[0], *steps[2:-1]]:
        done = typed(step, home)
        assert done.returncode == 0, (step, done.stderr)
        assert done.stdout or "wrote runs/demo/plots/attention.png" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.long
def test_the_next_recipe_trains_as_printed(home: Path, shown: str) -> None:
    done = typed(next_steps(shown)[-1], home)
    assert done.returncode == 0, done.stderr
    copied = typed("echo '3 1 2' | .venv/bin/clearhead translate runs/copy", home)
    assert copied.stdout == "3 1 2\n"


def test_after_the_line_it_prints_clearhead_is_a_command(home: Path, shown: str) -> None:
    (line,) = [line for line in shown.splitlines() if "source " in line]
    activate = line.removeprefix("Or first: ").partition("   ")[0]
    assert typed("command -v clearhead", home).returncode != 0
    done = typed(f"{activate} && clearhead --version", home)
    assert done.stdout.startswith("clearhead "), done.stderr
    usage = typed(f"{activate} && clearhead train", home).stderr
    assert usage.endswith("(see `clearhead train --help`)\n")


def test_another_task_is_refused(home: Path) -> None:
    done = typed(".venv/bin/clearhead demo --run runs/other --set data.task=copy", home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "data.task must stay 'dates', not 'copy'" in done.stderr
    assert not (home / "runs" / "other").exists()


def test_how_it_was_started_is_how_it_says_to_go_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = home / ".venv" / "bin" / "clearhead"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.chdir(home)
    assert invocation() == ".venv/bin/clearhead"
    monkeypatch.chdir(script.parent)
    assert invocation() == "./clearhead"
    (tmp_path / "with space").mkdir()
    monkeypatch.chdir(tmp_path / "with space")
    assert invocation() == str(script)
    (tmp_path / "with space" / "bin").mkdir()
    (tmp_path / "with space" / "bin" / "clearhead").symlink_to(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["with space/bin/clearhead"])
    assert invocation() == "'with space/bin/clearhead'"
    monkeypatch.setenv("PATH", f"{script.parent}:/bin")
    assert invocation() == "clearhead"
    others = tmp_path / "others"
    others.mkdir()
    (others / "clearhead").write_text("#!/bin/sh\n")
    (others / "clearhead").chmod(0o755)
    (others / "python").symlink_to(script.with_name("python").resolve())
    monkeypatch.setenv("PATH", str(others))
    assert invocation() == "'with space/bin/clearhead'"
    monkeypatch.setattr(sys, "argv", ["/anywhere/clearhead/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.chdir(home)
    assert invocation() == ".venv/bin/python -m clearhead"  # the other one is the same file and another environment
    monkeypatch.setenv("PATH", f"{script.parent}:{others}")
    assert invocation() == "python -m clearhead"


def panel(layer: int, weights: torch.Tensor) -> Panel:
    rows, columns = weights.shape[1:]
    return Panel(CROSS, layer, weights, torch.ones(rows, columns, dtype=torch.bool), ["r"] * rows, ["c"] * columns)


def test_a_head_that_reads_two_parts_is_one_head_with_both_shares() -> None:
    weights = torch.zeros(2, 11, 9)
    weights[1, :4, 5:9] = 0.25  # while it writes the year, all on the year's characters
    weights[1, 5, 3], weights[1, 6, 4] = 0.5, 0.7
    readers = {"year": Reader(0, 1, 0.9), "month": Reader(0, 1, 0.8), "day": Reader(1, 0, 0.7)}
    parts = {"day": (0, 2), "month": (3, 5), "year": (5, 9)}
    first, second = marked([panel(1, weights), panel(2, weights)], readers, parts)
    assert [(mark.head, mark.rows, mark.columns, mark.line) for mark in first.marks] == [
        (1, range(4), range(5, 9), "reads the year: 100% here, 90% on average"),
        (1, range(5, 7), range(3, 5), "reads the month: 60% here, 80% on average"),
    ]
    assert [mark.line for mark in second.marks] == ["reads the day: 0% here, 70% on average"]
    unfinished = panel(1, weights[:, :6])  # five characters and the end: no month, no day
    assert [mark.line[:14] for mark in marked([unfinished], readers, parts)[0].marks] == ["reads the year"]


def test_the_date_drawn_was_read_right_and_can_be_drawn() -> None:
    examples = [Example("\U0010fffd 2029", "x"), Example("3 mars", "y"), Example("4 mars", "z")]
    assert chosen(examples, [True, False, True]) == 2
    assert chosen(examples, [True, False, False]) == 0
