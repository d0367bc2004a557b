"""SIGKILL at every file operation of a training, and at every update: resumed, does it end as if nothing had happened?

Each operation is killed once before it is done (a write: half-way), in a run of its own, which is then resumed. What
must be equal, bit for bit, to the run that nothing happened to: every file there is, under the same names; weights,
optimizer, `best`, `latest`, the average; every line of metrics, and the scores of the final test. The same for a run
that is resumed and killed once more, for a group of two processes, and for the preparation of data. Excepted is what
tells of time: train.log, seconds and dates.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

import clearhead.data.prepare as preparing
import clearhead.data.store as stores
from bench.faults.fork import WORKSPACE
from bench.faults.forked import caching_in
from bench.faults.operations import RECIPE, Meet, command, intercept, operations, spread, warm_up
from bench.faults.outcome import Trial
from clearhead.disk import LOCK
from clearhead.run import STATE
from clearhead.training.loop import Loop
from clearhead.training.report import METRICS

SMALL = (  # the sample of the tests: the last operation of each of these kinds, where the next save mends nothing
    "write metrics.jsonl",
    "write checkpoints/.step_N.N/optimizer.safetensors",
    "rename checkpoints/.step_N.N",
    "write .latest.N",
    "rename .best.N",
    "rename checkpoints/step_N",
    "rename checkpoints/.average.N",
)


def trials(small: bool) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(dir=WORKSPACE) as name:
        folder = Path(name)
        prepare(folder)
        yield from series(folder, "killed while training", None, 1, kinds=SMALL if small else None)
        if not small:
            yield from series(folder, "killed while resuming", half_done(folder), 1)
            yield from series(folder, "one of two processes killed", None, 2, sample=30)
            yield from averaging(folder)
            yield from of_data(folder)


def prepare(folder: Path) -> None:
    (folder / "recipe.toml").write_text(tomli_w.dumps(RECIPE.to_dict()))
    warm_up(folder / "warm")


def training(folder: Path, run: Path) -> list[str]:
    return ["train", str(folder / "recipe.toml"), "--into", str(run)]


def half_done(folder: Path) -> Path:
    """A run that was killed in the middle, to be gone on with."""
    run = folder / "half"
    moments = met_in(run, training(folder, run))
    shutil.rmtree(run)
    command(training(folder, run), lambda: watch(run, kill_at(len(moments) // 2)))
    return run


def series(
    folder: Path,
    family: str,
    start: Path | None,
    ranks: int,
    sample: int | None = None,
    kinds: tuple[str, ...] | None = None,
) -> Iterator[Trial]:
    """Kill at all moments of a training, or at so many, evenly spread; of two processes, one after the other."""
    straight, again = folder / "straight", folder / "again"
    begin(start, again)
    moments = met_in(again, training(folder, again))
    shutil.rmtree(straight, ignore_errors=True)
    for end in command(training(folder, straight), ranks=ranks):
        assert end.status == 0, end.said
    wanted = fingerprint(straight)
    last = {re.sub(r"\d{2,}", "N", moment): number for number, moment in enumerate(moments, 1)}
    for number in spread(len(moments), sample) if kinds is None else [last[kind] for kind in kinds]:
        victim = number % ranks
        case = f"at {number} of {len(moments)}, before `{moments[number - 1]}`" + f" (rank {victim})" * (ranks > 1)
        yield Trial(family, case, partial(killed, folder, start, number, ranks, victim, wanted))


def averaging(folder: Path) -> Iterator[Trial]:
    """Kill `clearhead average` where an average is replaced: at every moment there is one, the old or the new."""
    run = folder / "broken"
    words = ["average", str(run), "--last", "1"]
    begin(folder / "straight", run)
    old = fingerprint(run)
    moments = operations(run, words)
    new = fingerprint(run)
    assert old != new

    def attempt(number: int) -> str:
        begin(folder / "straight", run)
        (end,) = command(words, lambda: intercept(run, kill_at(number)))
        found = {name: content for name, content in fingerprint(run).items() if "/." not in name}
        wrong = f"the kill missed: {end.status}, {end.said}" if end.status != -signal.SIGKILL else ""
        if not wrong and found not in (old, new):
            wrong = "neither the old average nor the new: " + difference(found, old)
        (end,) = command(words)
        return wrong or (f"again: {end.said}" if end.status else difference(fingerprint(run), new))

    for number, moment in enumerate(moments, 1):
        case = f"at {number} of {len(moments)}, before `{moment}`"
        yield Trial("killed while averaging again", case, partial(attempt, number))


def of_data(folder: Path) -> Iterator[Trial]:
    """Kill `clearhead data prepare` at every operation on the cache; the same command then makes the same store."""
    (folder / "text.txt").write_text("".join(f"Line {n} of a text.\n" for n in range(120)))
    (folder / "data.toml").write_text('[data]\ntext = "text.txt"\ndocuments = "line"\n[tokenizer]\nvocab_size = 280\n')
    words, cache = ["data", "prepare", str(folder / "data.toml")], folder / "cache"

    def small(cache: Path, meet: Meet) -> None:
        """Several blocks, each of which is written down."""
        caching_in(cache)()
        preparing.BLOCK, stores.EVERY = 800, 0.0
        intercept(cache, meet)

    moments = operations(cache, words, small)
    wanted = fingerprint(cache)

    def attempt(number: int) -> str:
        shutil.rmtree(cache)
        (end,) = command(words, lambda: small(cache, kill_at(number)))
        if end.status != -signal.SIGKILL:
            return f"the kill missed: {end.status}, {end.said}"
        (end,) = command(words, lambda: small(cache, kill_at(0)))
        return f"again: {end.said}" if end.status else difference(fingerprint(cache), wanted)

    for number, moment in enumerate(moments, 1):
        told = re.sub(r"\w{24}", "KEY", moment)  # of which some go by the path
        yield Trial(
            "killed while preparing data", f"at {number} of {len(moments)}, before `{told}`", partial(attempt, number)
        )


def begin(start: Path | None, run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    if start is not None:
        shutil.copytree(start, run)


def killed(folder: Path, start: Path | None, number: int, ranks: int, victim: int, wanted: dict[str, Any]) -> str:
    """Kill, resume, compare; what went wrong, if anything did."""
    run = folder / "broken"
    begin(start, run)

    def first() -> None:
        if int(os.environ.get("RANK", "0")) == victim:
            # a rank that writes no files has only its updates to be killed at
            watch(run, kill_at(number if victim == 0 else 1 + number % RECIPE.training.steps))

    ends = command(training(folder, run), first, ranks)
    if ends[victim].status != -signal.SIGKILL:
        return f"the kill missed: {ends[victim].status}, {ends[victim].said}"
    if -signal.SIGKILL in [end.status for end in ends[:victim] + ends[victim + 1 :]]:
        return "the other process waited for ever"
    for end in command(training(folder, run), ranks=ranks):
        if end.status:
            return f"resuming ended with status {end.status}: {end.said[-500:]}"
    return difference(fingerprint(run), wanted)


def watch(run: Path, meet: Meet) -> None:
    """Every operation on the run, and every update, which comes before whatever follows from it."""
    intercept(run, meet)
    real = Loop.one_update

    def update(loop: Loop) -> None:
        meet("update", run / str(loop.progress.step + 1), lambda: None)
        real(loop)

    Loop.one_update = update  # type: ignore[method-assign, assignment]


def met_in(run: Path, arguments: list[str]) -> list[str]:
    return operations(run, arguments, watch)


def kill_at(number: int) -> Meet:
    left = [number]

    def meet(operation: str, path: Path, half: Callable[[], None]) -> None:
        left[0] -= 1
        if left[0] == 0:
            half()
            os.kill(os.getpid(), signal.SIGKILL)

    return meet


# ---- what must be equal --------------------------------------------------------------------------------------------


def fingerprint(run: Path) -> dict[str, Any]:
    """All that a run holds but what tells of time, by file."""
    paths = (path for path in sorted(run.rglob("*")) if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(run)): content(path) for path in paths}


def content(path: Path) -> Any:
    """What must be equal of a file."""
    if path.name == "train.log":
        return re.findall(r"  (test: .*)", path.read_text())[-1:]
    try:
        if path.name == METRICS:
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            return [without(row, "seconds", "tokens_per_second") for row in rows]
        if path.name == STATE:
            state = without(json.loads(path.read_text()), "time", "commit")
            return {**state, "progress": without(state.get("progress", {}), "seconds")}
    except ValueError:  # half of one, under another name
        pass
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first files that are not as they should be."""
    wrong = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
    return "not as if nothing had happened: " + ", ".join(wrong[:5]) if wrong else ""
