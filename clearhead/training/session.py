"""From a recipe to a run folder: data, tokenizer, model, loop, and all that is attached to it.

The same call resumes: if the folder holds a run, its settings must be the same (but for those that may change), its
tokenizer is used, and training goes on from its newest whole checkpoint. A run is trained by one process (or one group
of them) at a time. SIGTERM, SIGHUP and Ctrl-C end the update at hand, save, and leave.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import tomli_w
import torch

from clearhead.data.labelled import Labelled
from clearhead.data.splits import Splits
from clearhead.data.splits import build as build_data
from clearhead.data.vocabulary import fewer_tokens
from clearhead.disk import locked, make_folder, write_whole
from clearhead.errors import InputError, require
from clearhead.model import ModelConfig, build
from clearhead.run import CONFIG, MODEL, SOURCE_TOKENIZER, TOKENIZER, Run, check_weights
from clearhead.settings import merge, to_dict
from clearhead.training.checkpoint import Checkpoints, average, check_moments, clean_up, newest, restore_optimizers
from clearhead.training.compile import compile_hidden
from clearhead.training.config import Recipe, with_defaults
from clearhead.training.distributed import Ranks, broadcast, gathered, pick_precision
from clearhead.training.loop import Callback, Loop, Objective, Progress, seed_of
from clearhead.training.report import METRICS, Display, Log, Metrics, TensorBoard
from clearhead.training.resuming import (
    continue_with,
    describe_files,
    fingerprints,
    read_files,
    refuse_changed_files,
    refuse_changes,
    write_files,
)
from clearhead.training.transfer import fate_lines, freeze, inherited_tokenizers, take_over, with_body
from clearhead.training.validate import Judge, Validation, all_batches, better, evaluate

Attach = Callable[[Splits, Log], Sequence[Callback]]


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `signal` is the one that ended it early, 0 if none did."""

    run: Run
    splits: Splits
    progress: Progress
    signal: int = 0
    tests: dict[str, dict[str, float]] = field(default_factory=dict)  # scores by the name of the test set


def train(
    recipe: Recipe,
    folder: str | os.PathLike[str],
    attach: Attach | None = None,
    quiet: bool = False,
    start: str | os.PathLike[str] | None = None,
    judge: Callable[[Splits], Judge] | None = None,
) -> Outcome:
    """Train, or go on training, until the recipe's steps are done. `attach` makes callbacks that run at each update,
    before metrics are written; it is called on the first rank only. `start` is a run whose weights to begin
    with. `judge` makes what the measures BLEU and chrF need."""
    path = Path(folder)
    origin = None if start is None else Run(start)
    if origin is not None:
        require(origin.path.resolve() != path.resolve(), f"--from {start} is the run itself: it goes on without it")
        recipe = with_body(recipe, origin)
    with gathered(recipe.training.device, recipe.training.parallel) as ranks, held(path, ranks):
        precision = pick_precision(recipe.training.precision, ranks.device)
        recipe = replace(recipe, training=replace(recipe.training, precision=precision))  # type: ignore[arg-type]
        settings = recipe.training
        if settings.threads:
            torch.set_num_threads(settings.threads)
        log = Log(path / "train.log" if ranks.first else None, quiet or not ranks.first)
        splits, config, sums = prepare(recipe, path, ranks, log, origin)
        run = Run(path)
        saved = newest(run, log)
        torch.manual_seed(seed_of(settings.seed, "weights"))
        model = build(config)
        progress = Progress(batches=sums[0], measured=sums[1])
        if saved is not None:
            check_weights(saved.model, model.state_dict(), f"{saved.folder / MODEL} does not fit {path / CONFIG}")
            model.load_state_dict(saved.model)
            progress = saved.progress
            use_threads(saved.threads, settings.threads, log)
            for line in continue_with(progress, *sums):
                log(line)
        elif origin is not None:
            fates = take_over(model, splits.tokenizer, splits.source_tokenizer, origin)
            for line in (f"beginning with the weights of {origin.path}", *fate_lines(fates)):
                log(line)
        if settings.freeze:
            log(f"{freeze(model, settings.freeze):,} numbers stay as they are: {', '.join(settings.freeze)}")
        loop = Loop(model, splits.train, settings, ranks, progress)
        if settings.compile:
            compile_hidden(loop, log)
        if saved is not None:
            check_moments(loop, saved)
            restore_optimizers(loop, saved.optimizer)
            log(f"resuming {path} at step {progress.step:,} of {settings.steps:,}")
        else:
            count = sum(parameter.numel() for parameter in model.parameters())
            log(f"training {count:,} parameters on {len(splits.train):,} examples into {path}")
        sharded = ranks.count > 1 and ranks.parallel == "fsdp"  # then no rank has a model to decode with
        decoded = judge(splits) if judge is not None and not sharded else None
        validation = Validation(splits.validation, settings.max_tokens, settings.measure, decoded, splits.more)
        signal_number = go(loop, run, splits, validation, attach, log)
        tests: dict[str, dict[str, float]] = {}
        if ranks.first and not signal_number:
            if settings.average:
                used = average(run, settings.average, settings.average_of, log)
                log(f"averaged {len(used)} checkpoints, {used[0].name} to {used[-1].name}, into 'average'")
                compare_average(run, validation, progress, log)
            tests = test(run, splits, settings.max_tokens, log)
        ranks.barrier()
        return Outcome(run, splits, progress, signal_number, tests)


def compare_average(run: Run, validation: Validation, progress: Progress, log: Log) -> None:
    """Let `best` name the average if it does better on the validation data than the best checkpoint did."""
    measure = validation.measure
    scores = validation.scores(Objective(run.build("average"), 0.0, torch.float32), Ranks())
    wins = progress.best is None or better(scores, measure, progress.best)
    best = "no validation" if progress.best is None else f"{progress.best:.4f}"
    log(
        f"validation {measure} of the average {scores[measure]:.4f}, of the best checkpoint {best}: "
        + ("the average is now 'best'" if wins else "the checkpoint stays 'best'")
    )
    if wins:
        write_whole(run.path / "best", "average\n")


def test(run: Run, splits: Splits, max_tokens: int, log: Log) -> dict[str, dict[str, float]]:
    """How the best checkpoint does on each test set there is. Where it is damaged, or a set has nothing to predict,
    that is reported: what was trained is saved, and not in question."""
    sets = {**({"test": splits.test} if splits.test else {}), **splits.extra}
    results = {}
    for name, data in sets.items():
        try:
            objective = Objective(run.build("best"), 0.0, torch.float32)
            results[name] = evaluate(objective, data, all_batches(data, max_tokens), Ranks())
        except InputError as error:
            log(f"{name}: not tested, because {error}")
            continue
        log(f"{name}: " + "  ".join(f"{key} {value:.4f}" for key, value in results[name].items()))
    return results


def prepare(
    recipe: Recipe, path: Path, ranks: Ranks, log: Log, origin: Run | None = None
) -> tuple[Splits, ModelConfig, tuple[str, str]]:
    """Data and model configuration; a new run folder gets both written down, an old one is compared with them. Also the
    sums by which changed batches and validations are noticed."""
    if not ranks.first:
        ranks.wait()  # the first rank prepares the data
    run = Run(path) if (path / TOKENIZER).is_file() and (path / CONFIG).is_file() else None
    old = with_defaults(path / CONFIG) if (path / CONFIG).is_file() else {}
    if old and not recipe.model:  # a model from elsewhere, and a recipe that leaves it as it is
        recipe = replace(recipe, model=old.get("model", {}))
    if recipe.data.labels is None and old.get("data", {}).get("labels"):
        recipe = replace(recipe, data=replace(recipe.data, labels=tuple(old["data"]["labels"])))
    recipe.check_model()
    before = read_files(path)
    files = describe_files(recipe, before)
    told = refuse_changed_files(before, files, path) if before and ranks.first else []
    tokenizer, own = (None, None) if run is None else (run.tokenizer(), run.source_tokenizer())
    if run is None and origin is not None:
        tokenizer, own = inherited_tokenizers(recipe, origin)
    splits = build_data(recipe.data, tokenizer, recipe.tokenizer, own, log)
    source = splits.source_tokenizer
    sizes: tuple[int, int | None] = (splits.tokenizer.size, None if source is None else source.size)
    if source is not None and old and "source_vocab_size" not in old.get("model", {}):  # two tokenizers, one numbering
        sizes = max(splits.tokenizer.size, source.size), None
    config = recipe.model_config(splits.train.kind, splits.train.head, *sizes, getattr(splits.train, "needs", None))
    if isinstance(splits.train, Labelled):  # their names are part of the model
        recipe = replace(recipe, data=replace(recipe.data, labels=splits.train.labels))
        fit_labels(splits.train, config)
    if ranks.first:
        resolved = merge(recipe.to_dict(), {"model": to_dict(config)})
        resolved["model"].pop("preset", None)
        if (path / CONFIG).is_file():
            told = [*refuse_changes(old, resolved, path, before), *told]
        elif any(path.glob("checkpoints/step_*")):
            raise InputError(f"{path} has checkpoints but no {CONFIG}: not a run that can go on")
        splits.tokenizer.save(path / TOKENIZER)
        if source is not None:
            source.save(path / SOURCE_TOKENIZER)
        write_whole(path / CONFIG, tomli_w.dumps(resolved))
        if files:
            write_files(path, files)
        for line in told if "training" in old else ():
            log(line)
        for odd in recipe.training.oddities():
            log(f"warning: {odd}")
        if tokenizer is None and fewer_tokens(splits.tokenizer, recipe.tokenizer):
            asked = f"tokenizer.vocab_size = {recipe.tokenizer.vocab_size:,}"
            log(f"{splits.tokenizer.size:,} tokens in the vocabulary, not {asked}: no other pair occurs twice")
        for name, skipped in splits.skipped():
            log(f"{name}: {skipped}")
        clean_up(Run(path))
        ranks.go_on()
    return splits, config, fingerprints(recipe, files)


def fit_labels(data: Labelled, config: ModelConfig) -> None:
    """Refuse a model that cannot read texts of this length, or tell as many labels apart."""
    classes, table, segments = config.head.classes, config.positions.max_length, config.embedding.segments
    names = f"the data have {len(data.labels)} labels"
    pooled = config.head.kind == "pooled"
    require(pooled, f"{names}: model.head.kind must be 'pooled', one answer a text, not {config.head.kind!r}")
    require(classes == len(data.labels), f"{names}, model.head.classes = {classes}: leave it out, or let them agree")
    longest = data.longest()
    fits = table is None or longest <= table
    require(fits, f"a text has {longest} tokens, model.positions.max_length = {table}: set data.max_length={table}")
    require(segments >= 2 or not data.pairs, f"two texts need model.embedding.segments = 2, not {segments}")


def go(loop: Loop, run: Run, splits: Splits, validation: Validation, attach: Attach | None, log: Log) -> int:
    """Attach everything and run; returns the number of the signal that ended it, or 0."""
    settings, first = loop.settings, loop.ranks.first
    checkpoints = Checkpoints(run, loop.progress.step, log)
    metrics = Metrics(run.path / METRICS)
    display = Display(log, metrics, terminal=first and not log.quiet and os.isatty(2))
    loop.callbacks = [validation]
    if first:
        metrics.cut_back(loop.progress.step, log)
        if loop.progress.step:
            checkpoints.settle(loop)
        loop.callbacks += [*(attach(splits, log) if attach else ()), metrics, display]
        if settings.tensorboard:
            loop.callbacks.append(TensorBoard(run.path / "tensorboard"))
    loop.callbacks.append(checkpoints)
    try:
        with signals(loop) as received:
            loop.run()
            checkpoints.save(loop)
    finally:
        display.close()
    if loop.stop:
        log(f"stopped at step {loop.progress.step:,}: {loop.stop}")
    return received[0] if received else 0


@contextmanager
def held(path: Path, ranks: Ranks) -> Iterator[None]:
    """The run's folder, made if need be, for this training alone: the first rank holds it, all learn if it cannot."""
    with ExitStack() as stack:
        refused = ""
        if ranks.first:
            try:
                make_folder(path)
                stack.enter_context(locked(path))
            except InputError as error:
                refused = str(error)
        refused = broadcast(refused, ranks)
        if refused:
            raise InputError(refused)
        yield


@contextmanager
def signals(loop: Loop) -> Iterator[list[int]]:
    """SIGTERM, SIGHUP and Ctrl-C ask the loop to stop; a second Ctrl-C does not wait. Under `nohup` a hang-up is to be
    ignored, and stays so."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        loop.stop = loop.stop or f"received {signal.Signals(number).name}"

    heard = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def use_threads(before: int, wanted: int | None, log: Log) -> None:
    """The order in which threads add up numbers is part of the result, so a resumed run keeps their number."""
    if wanted is None and before != torch.get_num_threads():
        log(f"using {before} threads, as before the interruption")
        torch.set_num_threads(before)
