"""Checkpoints: what a run needs to go on as if nothing had happened, and which of them to keep.

A checkpoint is the weights, the optimizer's tensors and the loop's few scalars. Sharded tensors are gathered before
they are written and shared out again when they are read, so it does not matter how many processes there were: two can
go on where one stopped. Resuming takes the newest checkpoint that is whole; a damaged one is reported and passed over,
which loses nothing but time, because the steps after it are computed again to the same bits.
"""

import dataclasses
import math
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import clearhead
from clearhead.disk import beside, clear_temporaries, remove, sync, write_whole
from clearhead.errors import InputError, require
from clearhead.run import (
    MODEL,
    OPTIMIZER,
    STATE,
    Run,
    check_weights,
    read_state,
    read_tensors,
    step_name,
    step_of,
    validation_loss,
    write_checkpoint,
)
from clearhead.settings import from_dict
from clearhead.training.config import MOST_THREADS, TrainingSettings
from clearhead.training.distributed import shard_like, whole
from clearhead.training.loop import Loop, Progress
from clearhead.training.optimizer import optimizer_tensors, remembered_shapes
from clearhead.training.report import METRICS, warn

Report = Callable[[str], None]
FLOAT = torch.float32  # of weights and moments, whatever the precision of the passes
TEMPORARY = re.compile(  # what is written into a run beside its place, by the process whose number follows
    r"\.(?:config\.toml|data\.json|(?:source_)?tokenizer\.json|latest|best|metrics\.jsonl|(?:old\.)?average|.+\.(?:png|svg|pdf|html))\.(\d+)"
)


@dataclasses.dataclass
class Saved:
    """A checkpoint read from disk, to go on from."""

    folder: Path
    progress: Progress
    threads: int
    unmoved: list[str]  # parameters of which no optimizer remembers anything
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    @classmethod
    def read(cls, folder: Path) -> "Saved":
        """Refused unless all of it is there and whole."""
        state = read_state(folder)
        where = folder / STATE
        progress: Any = state.get("progress")
        threads: Any = state.get("threads")
        unmoved: Any = state.get("unmoved", [])
        require(isinstance(progress, dict), f"{where}: progress must be a table, not {progress!r:.80}")
        fits = type(threads) is int and 1 <= threads <= MOST_THREADS
        require(fits, f"{where}: threads must be from 1 to {MOST_THREADS}, not {threads!r:.80}")
        fits = isinstance(unmoved, list) and all(isinstance(name, str) for name in unmoved)
        require(fits, f"{where}: unmoved must be a list of parameters, not {unmoved!r:.80}")
        try:
            done = from_dict(Progress, progress, "progress.")
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        require(done.step == state["step"], f"{where}: progress.step = {done.step} is not step = {state['step']}")
        for key, most in (("epoch", math.inf), ("batch", math.inf), ("best_step", done.step)):
            value = getattr(done, key)
            require(0 <= value <= most, f"{where}: progress.{key} must be from 0 to {most}, not {value}")
        tensors = [read_tensors(folder, file, state) for file in (MODEL, OPTIMIZER)]
        return cls(folder, done, threads, unmoved, *tensors)


def newest(run: Run, report: Report) -> Saved | None:
    """The newest checkpoint that can be read whole, or None if there is none at all."""
    folders = run.checkpoints()
    for folder in reversed(folders):
        try:
            return Saved.read(folder)
        except InputError as error:
            report(f"{error}; trying the one before it")
    if folders:
        raise InputError(f"none of the {len(folders)} checkpoints in {run.path / 'checkpoints'} can be read")
    return None


def check_moments(loop: Loop, saved: Saved) -> None:
    """Refuse, by name, what the optimizers do not remember, lack, or would misread: torch takes any tensor and lets
    its kernels read beyond the end of a short one."""
    where = saved.folder / OPTIMIZER
    wanted: dict[str, torch.Size] = {}
    for name, shapes in remembered_shapes(loop.model, loop.optimizers).items():
        if name not in saved.unmoved:
            wanted |= shapes
    for name in sorted(wanted.keys() | saved.optimizer.keys()):
        require(name in wanted, f"{where}: tensor {name!r} is nothing that this optimizer remembers")
        require(name in saved.optimizer, f"{where} is incomplete: it has no tensor {name!r}")
        tensor = saved.optimizer[name]
        found, right = ((tuple(shape), kind) for shape, kind in ((tensor.shape, tensor.dtype), (wanted[name], FLOAT)))
        require(found == right, f"{where}: tensor {name!r} is {found[1]} {found[0]}, wanted is {right[1]} {right[0]}")
        require(bool(tensor.isfinite().all()), f"{where}: tensor {name!r} has values that are not finite")


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

    def __init__(self, run: Run, saved: int = 0, report: Report = warn) -> None:
        self.run, self.report = run, report
        self.saved = saved  # the step that was written last, or resumed from
        self.commit = source_commit()
        self.told: set[str] = set()

    def report_once(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self.report(line)

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
            self.sync_metrics()
            write_checkpoint(
                self.run.path / "checkpoints" / step_name(step),
                {MODEL: model, OPTIMIZER: moments},
                {
                    "step": step,
                    "progress": dataclasses.asdict(loop.progress),
                    "validation": loop.update.validation,
                    "threads": torch.get_num_threads(),
                    "processes": loop.ranks.count,
                    "unmoved": unmoved(loop),
                    "versions": versions(),
                    "commit": self.commit,
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                },
            )
            self.settle(loop)
        self.saved = step

    def settle(self, loop: Loop) -> None:
        """What follows from the newest checkpoint: `latest`, `best` and which others stay. Done after each, and when a
        run goes on, because whatever ended it may have come in between."""
        self.point("latest", loop.progress.step)
        if loop.progress.best_step:
            self.point("best", loop.progress.best_step)
        self.remove_old(loop.settings, loop.progress)

    def point(self, name: str, step: int) -> None:
        """Let `latest` or `best` name this step, if it does not already."""
        try:
            there = self.run.checkpoint(name).name == step_name(step) and (self.run.path / name).is_file()
        except InputError:
            there = False
        if not there:
            write_whole(self.run.path / name, step_name(step) + "\n")

    def sync_metrics(self) -> None:
        """The lines up to a checkpoint must outlive a power cut if the checkpoint does."""
        path = self.run.path / METRICS
        try:
            if path.is_file():
                sync(path)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; checkpoints are untouched") from None

    def remove_old(self, settings: TrainingSettings, progress: Progress) -> None:
        """Keep the last regular ones, the best ones, and what `latest` and `best` name."""
        there = [folder for folder in self.run.checkpoints() if step_of(folder) <= progress.step]
        wanted = {progress.step, progress.best_step}
        wanted |= {step_of(folder) for folder in last(there, settings, max(settings.keep_last, settings.average))}
        best_kept = max(settings.keep_best, settings.average if settings.average_of == "best" else 0)
        known = losses(
            there, self.report_once, settings.measure
        )  # a damaged one stays: it is not ours to say that nobody can mend it
        wanted |= {step_of(folder) for folder in best(known, best_kept)}
        for folder in known:
            if step_of(folder) not in wanted:
                try:
                    # renamed first: a kill in the middle of removing must not leave half a checkpoint behind
                    remove(folder.rename(beside(folder.with_name(f"old.{folder.name}"))))
                except OSError as error:
                    self.report_once(f"cannot remove {folder}, which is no longer needed: {error.strerror}")


def unmoved(loop: Loop) -> list[str]:
    """Parameters that no optimizer has moved yet: they had no gradient, or float16 has skipped all updates so far."""
    moved = {p for optimizer in loop.optimizers for p in optimizer.state}
    return [name for name, parameter in loop.model.named_parameters() if parameter not in moved]


def regular(step: int, settings: TrainingSettings) -> bool:
    """Whether a run that is never interrupted writes this step."""
    every = settings.checkpoint_every or settings.validate_every
    return step % every == 0 or step == settings.steps


def last(folders: list[Path], settings: TrainingSettings, count: int) -> list[Path]:
    """The newest checkpoints, without those that only an interruption made."""
    return [folder for folder in folders if regular(step_of(folder), settings)][-count:]


def losses(folders: list[Path], report: Report, measure: str = "loss") -> dict[Path, float | None]:
    """The validation of each checkpoint by this measure, if there was one, the lower the better. Damaged ones are
    reported and left out."""
    found = {}
    for folder in folders:
        try:
            score = validation_loss(read_state(folder), measure)
            found[folder] = score if score is None or measure == "loss" else -score
        except InputError as error:
            report(f"{error}; left out")
    return found


def best(known: Mapping[Path, float | None], count: int) -> list[Path]:
    """Those with the best validation; of equal ones the earlier."""
    scored = [(loss, step_of(folder), folder) for folder, loss in known.items() if loss is not None]
    return [folder for _, _, folder in sorted(scored)[:count]]


def clean_up(run: Run) -> None:
    """Remove what killed processes left behind. Called by the training that holds the run: steps half written or half
    removed are nobody else's; what other commands write is theirs while they live."""
    for rest in (run.path / "checkpoints").glob(".*step_*"):
        remove(rest)
    clear_leftovers(run)


def clear_leftovers(run: Run) -> None:
    """Remove temporaries whose process is no more."""
    for folder in (run.path, run.path / "checkpoints", run.path / "plots"):
        clear_temporaries(folder, TEMPORARY)


def average(run: Run, count: int, of: str = "last", report: Report = warn) -> list[Path]:
    """Average the weights of several checkpoints into `checkpoints/average`; returns which ones they were. Damaged
    ones are reported and left out."""
    kept = run.checkpoints()
    settings = from_dict(TrainingSettings, run.settings.get("training", {}), "training.")
    if of == "last":
        folders = last(kept, settings, len(kept))[::-1]
    else:
        folders = best(losses(kept, report, settings.measure), len(kept))
    used: list[Path] = []
    total: dict[str, Tensor] = {}
    for folder in folders:
        if len(used) == count:
            break
        try:
            weights = read_tensors(folder, MODEL, read_state(folder))
            check_weights(weights, total or weights, f"{folder / MODEL} does not fit the others")
        except InputError as error:
            report(f"{error}; left out")
            continue
        used.append(folder)
        for name, tensor in weights.items():
            # in float64: averaging equal weights must give exactly these weights
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    require(bool(used), f"{run.path} has no checkpoints to average")
    mean = {name: (tensor / len(used)).float() for name, tensor in total.items()}
    used.sort(key=step_of)
    state = {"step": step_of(used[-1]), "average_of": [folder.name for folder in used], "versions": versions()}
    clear_leftovers(run)
    write_checkpoint(run.path / "checkpoints" / "average", {MODEL: mean}, state)
    return used


def versions() -> dict[str, str]:
    return {"clearhead": clearhead.__version__, "torch": torch.__version__, "python": platform.python_version()}


def source_commit() -> str | None:
    """The commit of Clearhead's own source, where it runs from a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
