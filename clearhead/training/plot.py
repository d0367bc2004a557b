"""A run in one picture: loss, learning rate and gradient norm by step, as PNG and SVG.

Only what can be compared shares a panel. With label smoothing, training minimises another number than validation
reports: the target spreads ε over all classes, so even the best possible model has a loss of that target's entropy, far
above a validation loss without smoothing. Then each has a panel of its own, the training loss with that floor drawn in.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.disk import make_folder, write_whole
from clearhead.errors import InputError
from clearhead.run import Run
from clearhead.training.report import METRICS, read_metrics

TRAINING, VALIDATION = "tab:blue", "tab:orange"


def plot(run: Run) -> list[Path]:
    """Draw `metrics.jsonl` into the run's plots/; returns the files."""
    rows = read_metrics(run.path / METRICS)
    if not rows:
        raise InputError(f"{run.path / METRICS} has no lines of metrics: nothing to draw yet")
    return save(figure(rows, run.settings, str(run.path)), run, "training")


def save(made: Any, run: Run, name: str) -> list[Path]:
    """Write a figure into the run's plots/, as PNG and SVG."""
    folder = run.path / "plots"
    make_folder(folder)
    files = []
    for kind in ("png", "svg"):
        drawn = io.BytesIO()
        made.savefig(drawn, format=kind, dpi=120)
        write_whole(folder / f"{name}.{kind}", drawn.getvalue())
        files.append(folder / f"{name}.{kind}")
    return files


def figure(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], title: str) -> Any:
    """The matplotlib figure of these lines of metrics, by a run with these settings."""
    from matplotlib.figure import Figure

    smoothing = settings.get("training", {}).get("label_smoothing", 0.0)
    steps, validated = [row["step"] for row in rows], [row for row in rows if "validation" in row]
    apart = bool(smoothing and validated)
    heights = (2, 2, 1, 1) if apart else (3, 1, 1)
    made = Figure(figsize=(8, 1.5 * sum(heights) + 1), layout="constrained")
    made.suptitle(title)
    panels = list(made.subplots(len(heights), 1, sharex=True, height_ratios=heights))
    first, last = panels[0], panels[1 if apart else 0]
    dropout = any(settings.get("model", {}).get("dropout", {}).values())
    extra = [*(["label smoothing"] if smoothing else []), *(["dropout"] if dropout else [])]
    label = f"training, with {' and '.join(extra)}" if extra else "training"
    training = [math.nan if row["loss"] is None else row["loss"] for row in rows]
    first.plot(steps, training, TRAINING, linewidth=1, label=label)
    if smoothing:
        floor = smoothing_floor(smoothing, classes(settings.get("model", {})))
        words = f"with smoothing {smoothing:g} it cannot fall below {floor:.3f} nats"
        first.axhline(floor, color="0.4", linestyle="--", linewidth=1, label=words)
    if validated:
        best = min(validated, key=lambda row: row["validation"]["loss"])
        label = f"validation, without {' and '.join(extra)}" if extra else "validation"
        label += f"; lowest {best['validation']['loss']:.3g} at step {best['step']:,}"
        losses = [row["validation"]["loss"] for row in validated]
        last.plot([row["step"] for row in validated], losses, "o-", color=VALIDATION, markersize=3, label=label)
    for axes in (first, last) if apart else (first,):
        axes.set(ylabel="loss per token (nats)")
        readable_scale(axes)
        axes.legend()
    rates, norms = panels[-2:]
    rates.plot(steps, [row["rate"] for row in rows], TRAINING, linewidth=1)
    rates.set(ylabel="learning rate")
    norms.plot(steps, [row["norm"] for row in rows], TRAINING, linewidth=0.7)
    norms.set(ylabel="gradient norm", xlabel="step", yscale="log")
    for axes in panels:
        axes.grid(alpha=0.3)
    return made


def readable_scale(axes: Any) -> None:
    """Logarithmic where the values span more than a linear axis shows, with plain numbers either way."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    values = [value for line in axes.lines for value in line.get_ydata() if math.isfinite(value)]
    if values and min(values) > 0 and max(values) > 4 * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def classes(model: Mapping[str, Any]) -> int:
    """How many classes the model chooses among: those of its head, or else its vocabulary."""
    return model.get("head", {}).get("classes") or model["vocab_size"]


def smoothing_floor(smoothing: float, classes: int) -> float:
    """The entropy of the smoothed target, in nats: the loss of a model that is as right as it can be."""
    each = smoothing / classes
    right = 1 - smoothing + each
    return -right * math.log(right) - (classes - 1) * each * math.log(each)
