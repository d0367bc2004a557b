"""What a run tells: lines for people at each validation, a star at the best, and the same numbers for TensorBoard."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clearhead.training.loop import Loop
from clearhead.training.report import Display, Log, Metrics, TensorBoard, read_metrics
from clearhead.training.validate import Validation
from tests.training import small


def train(tmp_path: Path, *callbacks: Any, **changes: Any) -> Loop:
    torch.manual_seed(0)
    parts, recipe = small.splits(), small.recipe(dropout=0.0, **{"steps": 6, "validate_every": 2, **changes})
    loop = Loop(small.model(), parts.train, recipe.training, callbacks=[Validation(parts.validation, 96), *callbacks])
    loop.run()
    return loop


def test_a_line_at_each_validation_with_a_star_at_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics, log = Metrics(tmp_path / "metrics.jsonl"), Log(tmp_path / "train.log")
    assert metrics.speed == 0
    # the rate is so high that some validation is worse than one before it
    train(tmp_path, metrics, Display(log, metrics, terminal=False), steps=12, peak=0.3, warmup=0, schedule="constant")
    rows = {row["step"]: row for row in read_metrics(tmp_path / "metrics.jsonl")}
    named = {"step", "epoch", "loss", "rate", "norm", "tokens_per_second", "seconds", "validation"}
    assert rows[12].keys() == named
    lines = [line.split("  ", 1)[1] for line in (tmp_path / "train.log").read_text().splitlines()]
    assert capsys.readouterr().err.splitlines() == lines
    best, starred = float("inf"), 0
    for step, line in zip(range(2, 13, 2), lines, strict=True):
        loss = rows[step]["validation"]["loss"]
        assert line.startswith(f"step {step:>6}  loss ")
        assert f"validation loss {loss:.4f}" in line
        assert line.endswith("  *") == (loss < best)
        best, starred = min(best, loss), starred + (loss < best)
    assert 0 < starred < 6


def test_on_a_terminal_a_bar_tells_how_far_it_is(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    display = Display(Log(None, quiet=True), metrics, terminal=True)
    try:
        loop = train(tmp_path, metrics, display)
        assert display.bar is not None
        task = display.bar.tasks[0]
        assert (task.completed, task.total) == (6, 6)
        assert display.bar.live.transient  # it goes when the training ends, and the log stays
        assert task.description.startswith(f"loss {loop.update.loss:.3f}  best validation {loop.progress.best:.3f}")
    finally:
        display.close()


@pytest.mark.parametrize(("bad", "told"), [(1, "1 line that is"), (2, "2 lines that are")])
def test_lines_that_are_no_metrics_are_counted(bad: int, told: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = '{"step": 1, "loss": 2.0, "rate": 0.1, "norm": 1.0}\n'
    path.write_text(good + "{\n" * bad)
    said: list[str] = []
    assert [row["step"] for row in read_metrics(path, said.append)] == [1]
    assert said == [f"{path}: left out {told} no metrics (first: line 2)"]


def test_tensorboard_gets_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is no dependency; what stands in for it only writes down what it is told."""
    told: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "events")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            told.append((name, value, step))

        def flush(self) -> None:
            told.append(("flush", 0.0, 0))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    losses: dict[int, float] = {}
    loop = train(
        tmp_path,
        TensorBoard(tmp_path / "events"),
        lambda loop: losses.update({loop.progress.step: loop.update.loss}),
        log_every=3,
    )
    assert [one for one in told if one[0] == "training/loss"] == [
        ("training/loss", losses[step], step) for step in (3, 6)
    ]
    assert ("training/rate", loop.update.rate, 6) in told
    assert ("training/norm", loop.update.norm, 6) in told
    assert [step for name, _, step in told if name == "validation/loss"] == [2, 4, 6]
    assert told.count(("flush", 0.0, 0)) == 3
