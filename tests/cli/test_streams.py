"""Closed, full and abandoned streams: the result is told or the failure is, and nothing else is disturbed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# a result of a few lines, without torch
WORDS = ["train", "copy", "--dump-config"]


def run(redirection: str, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """`clearhead words…` by a shell that redirects its streams first."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "clearhead", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize(
    ("redirection", "why"), [(">&-", "it is closed"), (">/dev/full", "No space left on device")], ids=str
)
def test_a_result_that_cannot_be_written_blames_standard_output(redirection: str, why: str, tmp_path: Path) -> None:
    done = run(redirection, WORDS, tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"clearhead: error: cannot write to standard output: {why}\n"


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&-"])
def test_what_is_not_needed_may_be_closed(redirection: str, tmp_path: Path) -> None:
    done = run(redirection, WORDS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[data]")


def test_a_closed_standard_input_is_blamed_by_who_reads_it(tmp_path: Path) -> None:
    from clearhead.tokenizer import Integers

    Integers(8).save(tmp_path / "tokenizer.json")
    done = run("<&-", ["tokenizer", "encode", "tokenizer.json"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "clearhead: error: cannot read standard input: Bad file descriptor\n"


def test_a_file_never_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """Else what is told would be written into the next file that is opened."""
    script = "from clearhead.cli.streams import prepare_streams as p; p(); import os; print(os.open('new', 65), end='')"
    command = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert int(done.stdout) > 2


def test_letters_that_the_terminal_does_not_know_are_replaced() -> None:
    script = "from clearhead.cli.streams import prepare_streams as p; p(); print('√2')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("?2\n", "")


def test_a_folder_that_is_gone_is_no_obstacle(tmp_path: Path) -> None:
    """Where the words need it, it is blamed; where they do not, nobody notices."""
    for words, status, said in (
        (["--version"], 0, ""),
        (["train", "copy", "--set", "data.text=x"], 2, "the working folder has been removed"),
        (["train", "--nonsense"], 2, "no option --nonsense"),
    ):
        gone = tmp_path / "gone"
        gone.mkdir()
        command = ["sh", "-c", 'rmdir ../gone; exec "$@"', "sh", sys.executable, "-m", "clearhead", *words]
        path = str(Path(__file__).resolve().parents[2])
        done = subprocess.run(command, capture_output=True, text=True, cwd=gone, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == status
        assert said in done.stderr
        assert "Traceback" not in done.stderr
