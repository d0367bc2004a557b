"""The command line as a whole: quick, every command explained, mistakes answered in one line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import clearhead
from clearhead.cli.main import app, main
from clearhead.errors import InputError

HEAVY = {"torch", "numpy", "matplotlib", "transformers", "sacrebleu"}

# `clearhead --help` and every other, in one fresh process that then tells what it had to load for them
HELP_OF_ALL = """
import json, sys
import clearhead.cli.main
from typer.testing import CliRunner
for path in json.loads(sys.argv[1]):
    result = CliRunner().invoke(clearhead.cli.main.app, [*path, "--help"])
    assert result.exit_code == 0, (path, result.output)
print(json.dumps(sorted(sys.modules)))
"""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that lead to it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))
LEAVES = [path for path, command in COMMANDS.items() if not hasattr(command, "commands")]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """`clearhead words…` in this process; its exit status."""
    monkeypatch.setattr(sys, "argv", ["clearhead", *words])
    with pytest.raises(SystemExit) as exit:
        main()
    return int(exit.value.code or 0)


def test_help_loads_nothing_heavy() -> None:
    """What keeps `clearhead --help` under half a second; the seconds themselves depend on the machine."""
    words = json.dumps([list(path) for path in COMMANDS])
    done = subprocess.run([sys.executable, "-c", HELP_OF_ALL, words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not HEAVY & {name.split(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    """In words; and one that must be told what to work on, with an example."""
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    _, _, explained = result.output.partition("Usage:")[2].partition("\n")
    explained = explained.split("╭")[0]
    assert explained.strip()
    if any(parameter.param_type_name == "argument" for parameter in COMMANDS[path].params):
        assert f"clearhead {' '.join(path)}" in explained


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"clearhead {clearhead.__version__}\n"


def test_a_mistake_in_the_input_is_one_line_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clearhead", "shapes", "gtp2"], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("clearhead: error: 'gtp2' is neither a preset (base, ")
    assert done.stderr.count("\n") == 1


def test_an_input_error_anywhere_is_told_not_thrown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> None:
        raise InputError("train.en, line 3: this is the matter")

    monkeypatch.setattr("clearhead.cli.commands.shapes.chosen_model", refuse)
    assert run(monkeypatch, "shapes") == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "clearhead: error: train.en, line 3: this is the matter\n")


@pytest.mark.parametrize("words", [["--version"], ["shapes", "--help"]])
def test_a_reader_who_leaves_early_is_not_complained_about(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "clearhead", *words], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
