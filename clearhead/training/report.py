"""What a run tells: metrics.jsonl for programs, train.log and standard error for people, TensorBoard if wanted.

All of it is attached to the loop as callbacks. A line of metrics is written before the checkpoint of its step, and on
resuming everything after the checkpoint is cut off, so the file reads as if the run had never been interrupted.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from clearhead.disk import write_whole
from clearhead.errors import InputError
from clearhead.training.loop import Loop


class Metrics:
    """Callback: one JSON object a line; the training loss is the mean over the updates since the line before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens = 0
        self.since = time.perf_counter()
        self.speed = 0.0

    def cut_back(self, step: int) -> None:
        """Remove lines after `step`, and one that was only half written."""
        if not self.path.is_file():
            return
        kept = []
        for line in self.path.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except ValueError:
                continue
        write_whole(self.path, "".join(kept))

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
            "loss": update.mean_loss,
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
        if self.path is not None:
            append(self.path, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)


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
            self.bar.update(self.task, completed=step, total=loop.settings.steps, description=text)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def append(path: Path, text: str) -> None:
    """Add to a file that only grows."""
    try:
        with open(path, "a") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; checkpoints are untouched") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All lines of a metrics.jsonl."""
    if not path.is_file():
        raise InputError(f"no metrics at {path}")
    return [json.loads(line) for line in path.read_text().splitlines()]
