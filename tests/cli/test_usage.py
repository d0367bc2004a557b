"""What the command line says about itself: one line for a mistake in the words, and help that keeps its lines."""

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clearhead.cli import completion
from clearhead.cli.main import app
from tests.cli.test_main import COMMANDS, LEAVES, run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["translat", "x"], "no command 'translat'; did you mean 'translate'?"),
        (["zzz"], "no command 'zzz'; known: ablate, attention, "),
        (["lab", "rum"], "no command 'rum'; did you mean 'run'?"),
        (["train"], "missing argument 'RECIPE' (see `clearhead train --help`)"),
        (["train", "copy", "--runn", "x"], "no option --runn; did you mean '--run'? (see `clearhead train --help`)"),
        (["train", "copy", "-q"], "no option -q; known: --dump-config, --from, --help, --into, "),
        (["lab", "run", "--jobs", "two", "scaling"], "--jobs two: "),
        (["translate", "x", "--threads=0"], "--threads 0: "),
        (["translate", "x", "--n-best"], "option '--n-best' requires an argument (see `clearhead translate --help`)"),
        (["tokenizer", "train", "a.txt"], "missing option '--vocab-size' (see `clearhead tokenizer train --help`)"),
        (["plot", "a", "b"], "got unexpected extra argument"),
    ],
)
def test_a_mistake_in_the_words_is_one_line(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"clearhead: error: {said}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["lab"]], ids=str)
def test_no_words_are_answered_with_the_help(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, *words)
    captured = capsys.readouterr()
    assert "Commands" in captured.out
    assert captured.err == ""


def examples(command: Any) -> list[str]:
    """The lines below `Examples:` as they were written."""
    _, _, written = (command.callback.__doc__ or "").partition("Example")
    return [line.strip() for line in written.splitlines()[1:] if line.strip()]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
@pytest.mark.parametrize("width", [80, 120])
def test_help_shows_each_example_on_a_line_of_its_own(path: tuple[str, ...], width: int) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(width)}).output.splitlines()
    wanted = examples(COMMANDS[path])
    assert wanted
    for line in wanted:
        assert f"   {line}" in [one.rstrip() for one in shown]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_fills_its_lines(path: tuple[str, ...]) -> None:
    """A paragraph wrapped in the source at another width is not wrapped twice."""
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}).output
    text = shown.partition("Usage:")[2].partition("\n")[2].partition("╭")[0].partition(" Example")[0]
    for paragraph in text.split(f"\n{' ' * 80}\n"):
        lines = paragraph.strip().splitlines()
        for line, following in itertools.pairwise(lines):
            assert len(line.strip()) + 1 + len(following.split()[0]) > 78, (line, following)


def offered(words: str, folder: Path) -> list[str]:
    """What bash is offered after these words, of which the last may be incomplete."""
    environment = {
        **os.environ,
        "_CLEARHEAD_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "clearhead"], env=environment, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_shell_is_offered_commands_recipes_presets_and_runs(tmp_path: Path) -> None:
    for run_folder in ("runs/one", "runs/two", "elsewhere"):
        (tmp_path / run_folder).mkdir(parents=True)
        (tmp_path / run_folder / "config.toml").touch()
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "mine.toml").touch()
    assert offered("clearhead ", tmp_path) == [path[0] for path in COMMANDS if len(path) == 1]
    assert offered("clearhead trai", tmp_path) == ["train"]
    assert offered("clearhead train s", tmp_path) == ["shakespeare", "sort", "stdlib"]
    assert offered("clearhead train mi", tmp_path) == ["mine.toml"]
    assert offered("clearhead shapes b", tmp_path) == ["base", "big", "bert-base"]
    assert offered("clearhead translate ", tmp_path) == ["elsewhere", "runs/one", "runs/two"]
    assert offered("clearhead plot runs/t", tmp_path) == ["runs/two"]
    assert offered("clearhead plot el", tmp_path) == ["elsewhere"]


def test_completion_can_be_installed_and_knows_the_presets() -> None:
    from clearhead.model import PRESETS

    shown = CliRunner().invoke(app, ["--help"]).output
    assert "--install-completion" in shown
    assert "--show-completion" in shown
    assert list(completion.PRESETS) == list(PRESETS)
