"""What a run tells: metrics.jsonl for programs, train.log and standard error for people, TensorBoard if wanted.

All of it is attached to the loop as callbacks. A line of metrics is written before the checkpoint of its step, and on
resuming everything after the checkpoint is cut off, so the file reads as if the run had never been interrupted.
"""

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearhead.disk import write_whole
from clearhead.errors import InputError, visible
from clearhead.reading import read_whole
from clearhead.training.loop import Loop

METRICS = "metrics.jsonl"


class Metrics:
    """Callback: one JSON object a line; the training loss is the mean over the updates since the line before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens = 0
        self.since = time.perf_counter()
        self.speed = 0.0

    def cut_back(self, step: int, report: Callable[[str], None]) -> None:
        """Remove lines after `step`, and those that cannot be read: the last one, half written by a process that was
        killed, without a word, others with one."""
        if not os.path.lexists(self.path):
            return
        rows = parse_metrics(self.path, report)
        write_whole(self.path, b"".join(line + b"\n" for line, row in rows if row["step"] <= step))

    def __call__(self, loop: Loop) -> None:
        update, progress, step = loop.update, loop.progress, loop.progress.step
        self.tokens += update.tokens
        if not loop.settings.reports(step):
            return
        now = time.perf_counter()
        self.speed = self.tokens / max(now - self.since, 1e-9)
        row: dict[str, Any] = {
            "step": step,
            "epoch": progress.epoch,
            "loss": update.mean_loss if math.isfinite(update.mean_loss) else None,  # JSON has no NaN
            "rate": update.rate,
            "norm": update.norm,
            "tokens_per_second": round(self.speed),
            "seconds": round(progress.seconds, 3),
        }
        if update.validation:
            row["validation"] = update.validation
        if loop.settings.precision == "float16":
            row["scale"] = progress.scale
        self.tokens, self.since = 0, now
        append(self.path, json.dumps(row) + "\n")


class TensorBoard:
    """Callback: the same numbers as TensorBoard events, if the package is installed."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("training.tensorboard = true needs the package: pip install tensorboard") from None
        self.writer = SummaryWriter(str(folder))

    def __call__(self, loop: Loop) -> None:
        update, step = loop.update, loop.progress.step
        if step % loop.settings.log_every == 0:
            for name, value in (("loss", update.loss), ("rate", update.rate), ("norm", update.norm)):
                self.writer.add_scalar(f"training/{name}", value, step)
        for name, value in update.validation.items():
            self.writer.add_scalar(f"validation/{name}", value, step)
        if update.validation:
            self.writer.flush()


class Log:
    """Lines for people: appended to train.log with the time, and shown on standard error."""

    def __init__(self, path: Path | None, quiet: bool = False) -> None:
        self.path, self.quiet = path, quiet

    def __call__(self, line: str) -> None:
        line = visible(line)  # samples of the data, and what a model makes of them, may hold anything
        if self.path is not None:
            append(self.path, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")
        if not self.quiet:
            tell(line)


def tell(line: str) -> None:
    """To standard error, if anybody is there: a terminal may be closed while a training still has work to save."""
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """What was left out, and why, for those who keep no log."""
    tell(f"clearhead: warning: {line}")


class Display:
    """Callback: a line in the log at each validation, and on a terminal a bar that moves in between."""

    def __init__(self, log: Log, metrics: Metrics, terminal: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.log, self.metrics = log, metrics
        self.bar = None
        if terminal:
            columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.bar.start()  # from here on, lines printed to standard error appear above the bar
            self.task = self.bar.add_task("")

    def __call__(self, loop: Loop) -> None:
        update, step = loop.update, loop.progress.step
        if update.validation:
            scores = "  ".join(f"{name} {value:.4f}" for name, value in update.validation.items())
            star = "  *" if loop.progress.best_step == step else ""
            kind = "smoothed loss" if loop.settings.label_smoothing else "loss"  # validation is without smoothing
            self.log(
                f"step {step:>6}  {kind} {update.loss:.4f}  validation {scores}  rate {update.rate:.2e}  "
                f"{self.metrics.speed:,.0f} tokens/s  {loop.progress.seconds:.0f} s{star}"
            )
        if self.bar is not None:
            best = "" if loop.progress.best is None else f"  best validation {loop.progress.best:.3f}"
            text = f"loss {update.loss:.3f}{best}  rate {update.rate:.1e}  {self.metrics.speed:,.0f} tokens/s"
            with contextlib.suppress(OSError):  # the terminal may be gone
                self.bar.update(self.task, completed=step, total=loop.settings.steps, description=text)

    def close(self) -> None:
        if self.bar is not None:
            with contextlib.suppress(OSError):
                self.bar.stop()


def append(path: Path, text: str) -> None:
    """Add to a file that only grows."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; checkpoints are untouched") from error


def read_metrics(path: Path, report: Callable[[str], None] = warn) -> list[dict[str, Any]]:
    """All lines of a metrics.jsonl; those that cannot be read are reported and left out."""
    if not os.path.lexists(path):
        raise InputError(f"no metrics at {path}")
    return [row for _, row in parse_metrics(path, report)]


def parse_metrics(path: Path, report: Callable[[str], None]) -> list[tuple[bytes, dict[str, Any]]]:
    """Each line as it stands and as it reads."""
    rows, bad = [], []
    lines = read_whole(path, pipes=False).split(b"\n")[:-1]  # what follows the last newline was not written to its end
    for number, line in enumerate(lines, 1):
        try:
            rows.append((line, checked_row(json.loads(line))))
        except (ValueError, RecursionError):
            bad.append(number)
    if bad:
        count = "1 line that is" if len(bad) == 1 else f"{len(bad)} lines that are"
        report(f"{path}: left out {count} no metrics (first: line {bad[0]})")
    return rows


def checked_row(row: Any) -> dict[str, Any]:
    """A line of metrics, with all that is cut by or drawn of it; ValueError if it is none."""
    validation = row.get("validation", {"loss": 0.0}) if isinstance(row, dict) else None
    if not isinstance(validation, dict) or type(row.get("step")) is not int:
        raise ValueError
    values = [*(row.get(name) for name in ("loss", "rate", "norm")), validation.get("loss")]
    if row.get("loss", "") is None:  # written where there was nothing to predict
        values = values[1:]
    if any(type(value) not in (int, float) for value in values):
        raise ValueError
    return row
