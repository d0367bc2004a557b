"""The picture of a run: what shares a panel can be compared."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import InputError
from clearhead.run import Run
from clearhead.training.loss import cross_entropy
from clearhead.training.plot import figure, plot, smoothing_floor

ROWS: list[dict[str, Any]] = [
    {"step": 10, "loss": 3.0, "rate": 0.1, "norm": 1.0},
    {"step": 20, "loss": 0.6, "rate": 0.2, "norm": 0.5, "validation": {"loss": 0.25}},
    {"step": 30, "loss": 0.5, "rate": 0.1, "norm": 0.4, "validation": {"loss": 0.125}},
]


@pytest.mark.parametrize(("smoothing", "classes"), [(0.1, 10), (0.05, 400), (0.3, 2)])
def test_the_floor_is_the_loss_of_the_best_possible_model(smoothing: float, classes: int) -> None:
    target = torch.full((1, classes), smoothing / classes, dtype=torch.float64)
    target[0, 0] += 1 - smoothing
    best = cross_entropy(target.log(), torch.tensor([0]), smoothing)
    assert smoothing_floor(smoothing, classes) == pytest.approx(float(best), rel=1e-12)


def lines(axes: Any) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines}


def test_a_smoothed_training_loss_has_a_panel_of_its_own_with_its_floor() -> None:
    settings = {"training": {"label_smoothing": 0.1}, "model": {"vocab_size": 50, "dropout": {"residual": 0.1}}}
    training, validation, rates, norms = figure(ROWS, settings, "runs/x").axes
    floor = smoothing_floor(0.1, 50)
    assert lines(training) == {
        "training, with label smoothing and dropout": [3.0, 0.6, 0.5],
        f"with smoothing 0.1 it cannot fall below {floor:.3f} nats": [floor, floor],
    }
    assert lines(validation) == {
        "validation, without label smoothing and dropout; lowest 0.125 at step 30": [0.25, 0.125]
    }
    assert (rates.get_ylabel(), norms.get_ylabel()) == ("learning rate", "gradient norm")
    drawn = [[list(zip(*line.get_data(), strict=True)) for line in axes.lines] for axes in (rates, norms)]
    assert drawn == [[[(10, 0.1), (20, 0.2), (30, 0.1)]], [[(10, 1.0), (20, 0.5), (30, 0.4)]]]


def test_plain_losses_share_a_panel() -> None:
    settings = {"training": {}, "model": {"vocab_size": 50, "dropout": {"residual": 0.0}}}
    losses, _, _ = figure(ROWS, settings, "runs/x").axes
    assert list(lines(losses)) == ["training", "validation; lowest 0.125 at step 30"]


@pytest.mark.parametrize(("losses", "scale"), [((9.0, 2.0), "log"), ((5.0, 3.0), "linear"), ((3.0, 0.0), "linear")])
def test_only_losses_that_span_more_than_a_factor_of_four_are_drawn_on_a_logarithmic_scale(
    losses: tuple[float, float], scale: str
) -> None:
    rows = [{**ROWS[0], "step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    panel, *_ = figure(rows, {}, "runs/x").axes
    assert panel.get_yscale() == scale


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_every_panel_is_high_enough_to_be_read(smoothing: float) -> None:
    made = figure(ROWS, {"training": {"label_smoothing": smoothing}, "model": {"vocab_size": 50}}, "runs/x")
    made.draw_without_rendering()
    inches = [axes.get_position().height * made.get_figheight() for axes in made.axes]
    assert min(inches) > 1.2


def test_lines_that_are_no_metrics_are_left_out_of_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text("[model]\nvocab_size = 9\n")
    rows = [ROWS[0], {**ROWS[1], "loss": None}, ROWS[2]]  # None: nothing to predict since the line before
    lines = [*map(json.dumps, rows), "{", '{"step": 40, "loss": 1.0, "rate": 0.1, "norm": "x"}', ""]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert len(plot(Run(tmp_path))) == 2
    path = tmp_path / "metrics.jsonl"
    told = f"clearhead: warning: {path}: left out 2 lines that are no metrics (first: line 4)\n"
    assert capsys.readouterr().err == told
    path.write_text("{\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl has no lines of metrics: nothing to draw yet"):
        plot(Run(tmp_path))


def test_before_the_first_validation_there_is_a_picture_too(tmp_path: Path) -> None:
    settings = {"training": {"label_smoothing": 0.1}, "model": {"vocab_size": 9, "head": {"classes": 3}}}
    losses, _, _ = figure(ROWS[:1], settings, "runs/x").axes
    assert any(math.isclose(values[0], smoothing_floor(0.1, 3)) for values in lines(losses).values())
    (tmp_path / "config.toml").write_text(
        "[training]\nlabel_smoothing = 0.1\n[model]\nvocab_size = 9\n[model.head]\nclasses = 3\n"
    )
    (tmp_path / "metrics.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    png, svg = plot(Run(tmp_path))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "learning rate" in svg.read_text()
