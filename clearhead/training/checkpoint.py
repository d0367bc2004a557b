"""Checkpoints: what a run needs to go on as if nothing had happened, and which of them to keep.

A checkpoint is the weights, the optimizer's tensors and the loop's few scalars. Sharded tensors are gathered before
they are written and shared out again when they are read, so it does not matter how many processes there were: two can
go on where one stopped. Resuming takes the newest checkpoint that is whole; a damaged one is reported and passed over.
"""

import dataclasses
import json
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import clearhead
from clearhead.disk import write_whole
from clearhead.errors import InputError
from clearhead.run import (
    MODEL,
    OPTIMIZER,
    Run,
    read_state,
    read_tensors,
    step_name,
    step_of,
    write_checkpoint,
)
from clearhead.training.config import TrainingSettings
from clearhead.training.distributed import shard_like, whole
from clearhead.training.loop import Loop, Progress
from clearhead.training.optimizer import optimizer_tensors


@dataclasses.dataclass
class Saved:
    """A checkpoint read from disk."""

    folder: Path
    state: dict[str, Any]
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    @property
    def progress(self) -> Progress:
        return Progress(**self.state["progress"])


def newest(run: Run, report: Callable[[str], None]) -> Saved | None:
    """The newest checkpoint that can be read whole, or None if there is none at all."""
    folders = run.checkpoints()
    for folder in reversed(folders):
        try:
            state = read_state(folder)
            return Saved(folder, state, read_tensors(folder, MODEL, state), read_tensors(folder, OPTIMIZER, state))
        except InputError as error:
            report(f"{error}; trying the one before it")
    if folders:
        raise InputError(f"none of the {len(folders)} checkpoints in {run.path / 'checkpoints'} can be read")
    return None


def restore_optimizers(loop: Loop, saved: dict[str, Tensor]) -> None:
    """Hand each optimizer what it remembered of each parameter."""
    parameters = dict(loop.model.named_parameters())
    owner = {p: o for o in loop.optimizers for group in o.param_groups for p in group["params"]}
    for full_name, tensor in saved.items():
        key, name = full_name.split(".", 1)
        parameter = parameters[name]
        placed = shard_like(tensor, parameter) if tensor.dim() else tensor.to(parameter.device)
        owner[parameter].state[parameter][key] = placed


class Checkpoints:
    """Callback: writes checkpoints and removes those no longer wanted."""

    def __init__(self, run: Run, saved: int = 0) -> None:
        self.run = run
        self.saved = saved  # the step that was written last, or resumed from
        self.commit = source_commit()

    def __call__(self, loop: Loop) -> None:
        step = loop.progress.step
        improved = bool(loop.update.validation) and loop.progress.best_step == step
        if regular(step, loop.settings) or improved:
            self.save(loop)

    def save(self, loop: Loop) -> None:
        """Write this moment of the loop, unless it is written already. All ranks take part, the first one writes."""
        step = loop.progress.step
        if step == self.saved:
            return
        model = {name: whole(tensor.detach()).cpu() for name, tensor in loop.model.state_dict().items()}
        moments = {name: whole(value).cpu() for name, value in optimizer_tensors(loop.model, loop.optimizers)}
        if loop.ranks.first:
            write_checkpoint(
                self.run.path / "checkpoints" / step_name(step),
                {MODEL: model, OPTIMIZER: moments},
                {
                    "step": step,
                    "progress": dataclasses.asdict(loop.progress),
                    "validation": loop.update.validation,
                    "threads": torch.get_num_threads(),
                    "processes": loop.ranks.count,
                    "versions": versions(),
                    "commit": self.commit,
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                },
            )
            write_whole(self.run.path / "latest", step_name(step) + "\n")
            if loop.progress.best_step:
                write_whole(self.run.path / "best", step_name(loop.progress.best_step) + "\n")
            self.remove_old(loop.settings, loop.progress)
        self.saved = step

    def remove_old(self, settings: TrainingSettings, progress: Progress) -> None:
        """Keep the last regular ones, the best ones, and what `latest` and `best` name."""
        there = [folder for folder in self.run.checkpoints() if step_of(folder) <= progress.step]
        wanted = {progress.step, progress.best_step}
        wanted |= {step_of(folder) for folder in last(there, settings, max(settings.keep_last, settings.average))}
        best_kept = max(settings.keep_best, settings.average if settings.average_of == "best" else 0)
        wanted |= {step_of(folder) for folder in best(there, best_kept)}
        for folder in there:
            if step_of(folder) not in wanted:
                # renamed first: a kill in the middle of removing must not leave half a checkpoint behind
                shutil.rmtree(folder.rename(folder.with_name(f".old.{folder.name}")), ignore_errors=True)


def regular(step: int, settings: TrainingSettings) -> bool:
    """Whether a run that is never interrupted writes this step."""
    every = settings.checkpoint_every or settings.validate_every
    return step % every == 0 or step == settings.steps


def last(folders: list[Path], settings: TrainingSettings, count: int) -> list[Path]:
    """The newest checkpoints, without those that only an interruption made."""
    return [folder for folder in folders if regular(step_of(folder), settings)][-count:]


def best(folders: list[Path], count: int) -> list[Path]:
    """Those with the lowest validation loss; of equal ones the earlier."""
    scored = []
    for folder in folders:
        score = json.loads((folder / "state.json").read_text()).get("validation", {}).get("loss")
        if score is not None:
            scored.append((score, step_of(folder), folder))
    return [folder for _, _, folder in sorted(scored)[:count]]


def clean_up(run: Run) -> None:
    """Remove what a killed process left behind: checkpoints half written or half removed, all under dotted names."""
    for rest in (run.path / "checkpoints").glob(".*step_*"):
        shutil.rmtree(rest, ignore_errors=True)


def average(run: Run, count: int, of: str = "last") -> list[Path]:
    """Average the weights of several checkpoints into `checkpoints/average`; returns which ones they were."""
    settings = TrainingSettings(**run.settings.get("training", {}))
    folders = last(run.checkpoints(), settings, count) if of == "last" else best(run.checkpoints(), count)
    if not folders:
        raise InputError(f"{run.path} has no checkpoints to average")
    total: dict[str, Tensor] = {}
    for folder in folders:
        for name, tensor in read_tensors(folder, MODEL, read_state(folder)).items():
            # in float64: averaging equal weights must give exactly these weights
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    mean = {name: (tensor / len(folders)).float() for name, tensor in total.items()}
    step = max(map(step_of, folders))
    state = {"step": step, "average_of": [folder.name for folder in folders], "versions": versions()}
    write_checkpoint(run.path / "checkpoints" / "average", {MODEL: mean}, state)
    return folders


def versions() -> dict[str, str]:
    return {"clearhead": clearhead.__version__, "torch": torch.__version__, "python": platform.python_version()}


def source_commit() -> str | None:
    """The commit of Clearhead's own source, where it runs from a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
