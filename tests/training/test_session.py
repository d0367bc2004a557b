"""One training holds a run at a time, ends well when it is told to, and clears away what a killed one left."""

import io
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clearhead.disk import locked
from clearhead.errors import InputError
from clearhead.training.loop import Loop
from clearhead.training.report import Log
from clearhead.training.session import train
from tests.training import small
from tests.training.test_distributed import processes


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_second_training_is_refused_while_the_first_one_lives_and_names_it(tmp_path: Path) -> None:
    run, said = tmp_path / "run", tmp_path / "said"

    def second(loop: Loop) -> None:
        before = contents(run)
        child = os.fork()
        if child == 0:
            try:
                train(small.recipe(), run, quiet=True)
            except InputError as error:
                said.write_text(str(error))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert contents(run) == before, "the one that is refused writes nothing"

    train(small.recipe(steps=1), run, attach=lambda splits, log: [second], quiet=True)
    wait = "wait for it or end it, or choose another folder"
    assert said.read_text() == f"{run} is in use by process {os.getpid()}: {wait}"
    assert train(small.recipe(steps=2), run, quiet=True).progress.step == 2  # now it is free


def test_a_killed_training_holds_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        Loop.one_update = lambda loop: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]
        train(small.recipe(), tmp_path, quiet=True)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (tmp_path / ".lock").read_text().startswith(f"{child} ")
    assert train(small.recipe(steps=1), tmp_path, quiet=True).progress.step == 1


def test_every_rank_learns_that_the_run_is_in_use(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        with pytest.raises(InputError, match=f"is in use by process {holder}"):
            train(small.recipe(), tmp_path, quiet=True)

    holder = os.getpid()
    with locked(tmp_path):
        assert processes(2, work) == [0, 0]


def test_what_killed_processes_left_is_cleared_away_and_nothing_else(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    train(small.recipe(steps=2), tmp_path, quiet=True)
    before = contents(tmp_path)
    left = [f".latest.{dead.pid}", f".config.toml.{dead.pid}", f".latest.{os.getpid()}", f"plots/.a.svg.{dead.pid}"]
    left += [f"checkpoints/.average.{dead.pid}/x", f"checkpoints/.step_00000002.{os.getppid()}/x"]
    left += [f"checkpoints/.old.average.{dead.pid}/x", "checkpoints/.old.step_00000001/x"]
    kept = [
        f".notes.{dead.pid}",
        f"plots/.a.svg.{os.getppid()}",
        f"checkpoints/.average.{os.getppid()}",
        ".latest.mine",
    ]
    for name in (*left, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("half")
    train(small.recipe(steps=2), tmp_path, quiet=True)
    assert contents(tmp_path) - before == {*kept, "plots"}


def test_a_terminal_that_is_closed_costs_no_update(tmp_path: Path) -> None:
    """The hang-up saves and ends the training, though every further word to that terminal is an error."""
    child, terminal = pty.fork()
    if child == 0:
        status = 3
        try:

            def close(loop: Loop) -> None:
                if loop.progress.step == 3:
                    os.write(1, b"here")
                    while not loop.stop:  # until the hang-up has come
                        time.sleep(0.01)

            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            outcome = train(small.recipe(validate_every=3), tmp_path, attach=lambda splits, log: [close])
            status = outcome.signal
        finally:
            os._exit(status)
    shown = b""
    while b"here" not in shown:
        shown += os.read(terminal, 1024)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == signal.SIGHUP
    assert "stopped at step 3: received SIGHUP" in (tmp_path / "train.log").read_text()
    assert (tmp_path / "latest").read_text() == "step_00000003\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_words_that_nobody_can_hear_are_kept_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True), None):
        monkeypatch.setattr(sys, "stderr", stream)
        Log(tmp_path / "train.log")("a word")
    assert (tmp_path / "train.log").read_text().count("a word") == 2


def test_under_nohup_a_hang_up_is_ignored(tmp_path: Path) -> None:
    def send(loop: Loop) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        outcome = train(small.recipe(steps=2), tmp_path, attach=lambda splits, log: [send], quiet=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (outcome.signal, outcome.progress.step) == (0, 2)


def test_a_run_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match=f"cannot make the folder {path}: "):
            train(small.recipe(), path, quiet=True)
