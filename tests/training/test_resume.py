"""Killed at any moment and started again, a run ends in the same bits; what is damaged is named and passed over."""

import hashlib
import json
import os
import platform
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.data.pairs import Pairs
from clearhead.errors import InputError
from clearhead.run import MODEL, OPTIMIZER, Run, read_state
from clearhead.training import checkpoint, session, validate
from clearhead.training.checkpoint import average
from clearhead.training.loop import Loop
from clearhead.training.session import Outcome, train
from tests.training import small


def finish(folder: Path, **changes: object) -> Outcome:
    return train(small.recipe(**changes), folder, quiet=True)  # type: ignore[arg-type]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metrics(folder: Path) -> list[dict]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in row if key not in ("seconds", "tokens_per_second")} for row in rows]


def in_a_process(work: Callable[[], object]) -> int:
    """Run in a process of its own; minus the signal that ended it, or its exit status."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die(*arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to."""
    folder = tmp_path_factory.mktemp("straight")
    finish(folder)
    return folder


def kill_after(calls: int, module: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a function work so many times, and die instead of the next."""
    real, left = getattr(module, name), [calls]

    def counted(*arguments: object, **named: object) -> object:
        if left[0] == 0:
            die()
        left[0] -= 1
        return real(*arguments, **named)

    monkeypatch.setattr(module, name, counted)


MOMENTS = {
    "before the first checkpoint": (Loop, "one_update", [2]),
    "in the middle of epochs": (Loop, "one_update", [9, 5]),
    "at the turn of an epoch": (Pairs, "plan", [2, 4]),  # of them, the validation's are two
    "while files are forced to the disk": (os, "fsync", [5, 17, 40]),
    "between writing and naming": (os, "rename", [0, 2, 5]),
    "while validating": (validate, "evaluate", [0, 1]),
    "while writing the pointers": (checkpoint, "write_whole", [0, 1, 3]),
    "while removing old checkpoints": (shutil, "rmtree", [0, 1]),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_resumed_it_ends_in_the_same_bits(moment: str, straight: Path, tmp_path: Path) -> None:
    where, name, times = MOMENTS[moment]
    for calls in times:

        def work(calls: int = calls) -> None:
            with pytest.MonkeyPatch.context() as patch:
                kill_after(calls, where, name, patch)
                finish(tmp_path)

        assert in_a_process(work) == -signal.SIGKILL, "the kill missed"
    assert in_a_process(lambda: finish(tmp_path)) == 0
    last = Path("checkpoints/step_00000024")
    for file in (MODEL, OPTIMIZER):
        assert digest(tmp_path / last / file) == digest(straight / last / file)
    assert metrics(tmp_path) == metrics(straight)
    assert (tmp_path / "best").read_text() == (straight / "best").read_text()
    assert sorted(os.listdir(tmp_path / "checkpoints")) == sorted(os.listdir(straight / "checkpoints"))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_other_optimizers_remember_as_much(optimizer: str, tmp_path: Path) -> None:
    changes = {"optimizer": optimizer, "weight_decay": 0.1}
    finish(tmp_path / "straight", **changes)
    for steps in (9, 24):
        assert in_a_process(lambda steps=steps: finish(tmp_path / "broken", steps=steps, **changes)) == 0  # type: ignore[misc]
    for file in (MODEL, OPTIMIZER):
        one, two = (tmp_path / run / "checkpoints/step_00000024" / file for run in ("straight", "broken"))
        assert digest(one) == digest(two)


def test_dropout_is_on_in_these_tests() -> None:
    """Otherwise equal bits would say nothing about random numbers."""
    assert small.recipe().model["dropout"]["residual"] > 0


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")])
def test_a_signal_saves_and_the_rest_follows_later(number: int, name: str, straight: Path, tmp_path: Path) -> None:
    def send(loop: Loop) -> None:
        if loop.progress.step == 22:  # no step at which a checkpoint is due, and among the last ones
            os.kill(os.getpid(), number)

    outcome = train(small.recipe(), tmp_path, attach=lambda splits, log: [send], quiet=True)
    assert outcome.signal == number
    assert f"stopped at step 22: received {name}" in (tmp_path / "train.log").read_text()
    assert (tmp_path / "latest").read_text() == "step_00000022\n"
    assert finish(tmp_path).signal == 0
    last = Path("checkpoints/step_00000024")
    assert digest(tmp_path / last / MODEL) == digest(straight / last / MODEL)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == sorted(os.listdir(straight / "checkpoints"))


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_used(straight: Path, tmp_path: Path) -> None:
    finish(tmp_path, steps=16)
    newest = tmp_path / "checkpoints/step_00000016" / OPTIMIZER
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    finish(tmp_path)
    log = (tmp_path / "train.log").read_text()
    assert "step_00000016 is damaged: SHA-256 of optimizer.safetensors" in log
    assert "resuming" in log
    assert "at step 12 of 24" in log
    last = Path("checkpoints/step_00000024") / MODEL
    assert digest(tmp_path / last) == digest(straight / last)
    assert metrics(tmp_path)[-1] == metrics(straight)[-1]


def test_nothing_but_damaged_checkpoints_is_an_error_and_not_a_new_beginning(tmp_path: Path) -> None:
    finish(tmp_path, steps=8)
    for folder in (tmp_path / "checkpoints").iterdir():
        (folder / "state.json").write_text("")
    with pytest.raises(InputError, match=r"none of the 2 checkpoints in .* can be read"):
        finish(tmp_path)


def test_a_changed_setting_is_refused_by_name_and_more_steps_are_not(tmp_path: Path) -> None:
    finish(tmp_path, steps=8)
    with pytest.raises(InputError, match=r"was begun with training\.optimizer = 'adam', now it is 'muon'"):
        finish(tmp_path, optimizer="muon")
    with pytest.raises(InputError, match=r"was begun with training\.seed = 1, now it is 2"):
        finish(tmp_path, seed=2)
    assert finish(tmp_path, steps=12, log_every=1).progress.step == 12
    assert Run(tmp_path).settings["training"]["steps"] == 12


def test_a_finished_run_is_left_as_it_is(straight: Path, tmp_path: Path) -> None:
    finish(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
    finish(tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}


def test_a_full_disk_ends_the_run_with_a_clear_error_and_earlier_checkpoints_whole(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the full disk: the system's write fails for real."""
    finish(tmp_path, steps=8)
    whole = {path: digest(path) for path in tmp_path.glob("checkpoints/*/*")}

    def on_a_full_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # a checkpoint needs more, a log line does not
        with pytest.raises(InputError, match=r"cannot write checkpoint .*step_00000010: File too large; earlier ones"):
            finish(tmp_path)

    assert in_a_process(on_a_full_disk) == 0
    assert whole == {path: digest(path) for path in tmp_path.glob("checkpoints/*/*")}
    assert finish(tmp_path).progress.step == 24


def test_which_checkpoints_stay(tmp_path: Path) -> None:
    finish(tmp_path, keep_last=2, checkpoint_every=3, validate_every=5, steps=20)
    run = Run(tmp_path)
    kept = [checkpoint.step_of(folder) for folder in run.checkpoints()]
    assert kept[-2:] == [18, 20]
    assert (tmp_path / "latest").read_text() == "step_00000020\n"
    best = min((row for row in metrics(tmp_path) if "validation" in row), key=lambda row: row["validation"]["loss"])
    assert (tmp_path / "best").read_text() == f"step_{best['step']:08d}\n"
    assert read_state(run.checkpoint("best"))["validation"] == best["validation"]
    assert set(kept) == {18, 20, best["step"]}


def test_an_average_is_the_mean_of_the_last_regular_checkpoints(tmp_path: Path) -> None:
    finish(tmp_path, average=3)
    run = Run(tmp_path)
    mean = run.weights("average")
    parts = [run.weights(f"step_{step}") for step in (16, 20, 24)]
    for name, tensor in mean.items():
        expected = torch.stack([part[name].double() for part in parts]).mean(0)
        assert torch.equal(tensor, expected.float())
    used = average(run, 1)
    assert [folder.name for folder in used] == ["step_00000024"]
    state = read_state(run.checkpoint("average"))
    assert state["average_of"] == ["step_00000024"]
    assert state["versions"]["torch"] == torch.__version__
    assert all(torch.equal(tensor, parts[-1][name]) for name, tensor in run.weights("average").items())


def test_a_checkpoint_says_where_it_comes_from(straight: Path) -> None:
    state = read_state(Run(straight).checkpoint("latest"))
    assert state["step"] == state["progress"]["step"] == 24
    assert state["threads"] == torch.get_num_threads()
    versions = {"clearhead": clearhead.__version__, "torch": torch.__version__, "python": platform.python_version()}
    assert state["versions"] == versions
    assert {"processes", "commit", "time", "sha256"} <= state.keys()


def test_the_number_of_threads_is_kept_over_an_interruption() -> None:
    now, log = torch.get_num_threads(), session.Log(None, quiet=True)
    try:
        session.use_threads(now + 1, now, log)  # the user's word is last
        assert torch.get_num_threads() == now
        session.use_threads(now + 1, None, log)
        assert torch.get_num_threads() == now + 1
    finally:
        torch.set_num_threads(now)
