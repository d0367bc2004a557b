"""The disk full, read-only or failing at every operation that writes: one clear line, nothing whole is lost, and once
the disk is well again the same command ends in the same bits.

Full: from some operation on, nothing can be made or written, but names can still be changed and removed. Read-only:
from some operation on, nothing can be changed at all. Failing: one operation fails (EIO), whichever it is. A training
that is told so ends with status 2 and a line that names the file; where it can do without the operation (to remove what
is no longer needed), it may as well go on to the right end. The same holds for every other command that writes files.
"""

import errno
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
import tomli_w

from bench.faults.fork import CACHE, WORKSPACE
from bench.faults.kills import difference, fingerprint, prepare, training
from bench.faults.operations import RECIPE, Ended, Meet, command, intercept, operations, spread
from bench.faults.outcome import Trial
from bench.faults.sandbox import WORDS, write_foreign
from clearhead.errors import InputError
from clearhead.run import Run
from clearhead.settings import merge
from clearhead.tokenizer import train as train_tokenizer
from clearhead.training.checkpoint import Saved

SMALL = 3  # operations of each kind of fault in the sample of the tests
FAULTS = {  # name -> its number, the operations that it meets, and whether it stays
    "full": (errno.ENOSPC, {"open", "write", "fsync", "mkdir"}, True),
    "read-only": (errno.EROFS, None, True),
    "failing": (errno.EIO, None, False),
}
COMMANDS = {  # what else writes files, seen from a folder with a run, an encoder's run and a text
    "average": "average run --last 2",
    "plot": "plot run",
    "attention": "attention run '1 2 3'",
    "attention -o": "attention run '1 2 3' -o out/heads.html --force",
    "ablate -o": "ablate run '1 2 3' -o out/worth.svg --force",
    "explore -o": "explore run --text '1 2 3' -o out/page.html --force",
    "encode -o": "encode encoder text.txt --mean -o out/vectors.npy --force",
    "tokenizer train": "tokenizer train text.txt --vocab-size 262 --workers 1 -o out/tokenizer.json --force",
    "tokenizer convert": "tokenizer convert out/tokenizer.json out/converted.tiktoken --force",
    "tokenizer convert to a folder": "tokenizer convert out/tokenizer.json out/converted/ --force",
    "export": "export run out/exported --to numpy --force",
    "doctor": "doctor torch.nn:Transformer --quick --only future --write-baseline out/known.json --force",
    "import": "import foreign new/imported",
    "learn start": "learn start new/course",
    "learn export": "learn export --notebook new/notebooks",
    "data prepare": "data prepare data.toml",  # into new/cache
}
# Commands that write no files, or write them as others do that are tried, and why they are not here.
NOTHING = "it writes to standard output only: see mistakes_of_surroundings for a full one"
SAME = "what it writes is the learner's progress, by the one function that `learn start` writes it with"
LAB = "what it writes can be measured again; on a read-only disk it is tried in mistakes_of_surroundings"
ELSEWHERE: dict[tuple[str, ...], str] = {
    **{(name,): NOTHING for name in ("shapes", "profile", "plan")},
    **{(name,): NOTHING for name in ("translate", "generate", "score", "evaluate", "predict")},
    ("data", "look"): "what it writes is the cache, by the functions that `data prepare` writes it with",
    ("checkpoints",): NOTHING,
    ("serve",): "it writes nothing but what it says",
    **{("tokenizer", name): NOTHING for name in ("encode", "decode", "explain", "info")},
    **{("learn", name): NOTHING for name in ("solution", "list", "grade")},
    **{("learn", name): SAME for name in ("check", "watch", "hint", "skip", "reset", "bug")},
    ("demo",): "it trains, as `train` does, and draws, as `attention` does",
    ("learn", "finish"): "it saves a run by the functions that `train` saves one with",
    ("lab", "list"): NOTHING,
    ("lab", "run"): LAB,
    ("lab", "report"): LAB,
}


def trials(small: bool) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(dir=WORKSPACE) as name:
        folder = Path(name)
        prepare(folder)
        yield from trainings(folder, SMALL if small else None)
        if not small:
            yield from other_commands(folder)


def fail_at(number: int, fault: str) -> Meet:
    """Refuse the operation of this number, and those that follow if the fault stays."""
    code, met, stays = FAULTS[fault]
    done = [0]

    def meet(operation: str, path: Path, half: Callable[[], None]) -> None:
        done[0] += 1
        if (done[0] == number or (stays and done[0] > number)) and (met is None or operation in met):
            half()  # as much as there was room for
            raise OSError(code, os.strerror(code), str(path))

    return meet


def complaint(end: Ended, folder: Path, fault: str) -> str:
    """What is wrong with how a command ended."""
    said = end.said.strip().splitlines()
    if "Traceback" in end.said or end.status not in (0, 2):
        return f"status {end.status}: {end.said[-600:]}"
    if end.status == 2:
        line, why = said[-1], os.strerror(FAULTS[fault][0])
        if not line.startswith("clearhead: error: ") or why not in line or str(folder) not in line:
            return f"the last line names no file or not the reason: {line}"
    return ""


# ---- training ------------------------------------------------------------------------------------------------------


def trainings(folder: Path, sample: int | None) -> Iterator[Trial]:
    straight = folder / "straight"
    steps = operations(straight, training(folder, straight))
    wanted = fingerprint(straight)
    for fault in FAULTS:
        for number in spread(len(steps), sample):
            case = f"{fault} at {number} of {len(steps)}, `{steps[number - 1]}`"
            yield Trial(f"disk {fault} while training", case, partial(trained, folder, number, fault, wanted))


def trained(folder: Path, number: int, fault: str, wanted: dict[str, Any]) -> str:
    run = folder / "broken"
    shutil.rmtree(run, ignore_errors=True)
    (end,) = command(training(folder, run), lambda: intercept(run, fail_at(number, fault)))
    if wrong := complaint(end, run, fault) or damage(run):
        return wrong
    if end.status == 0:
        found = visible(fingerprint(run))
        if "cannot remove" in end.said:  # it said what it left lying about, which the next one removes
            found = {name: found[name] for name in found if name in wanted}
        if wrong := difference(found, visible(wanted)):
            return wrong
    (end,) = command(training(folder, run))
    if end.status:
        return f"resuming ended with status {end.status}: {end.said[-600:]}"
    return difference(fingerprint(run), wanted)


def visible(files: dict[str, Any]) -> dict[str, Any]:
    """Without what the next training removes."""
    return {name: content for name, content in files.items() if not re.search(r"(^|/)\.", name)}


def damage(run: Path) -> str:
    """Whether a checkpoint, or what names one, is not whole."""
    try:
        for folder in run.glob("checkpoints/step_*"):
            Saved.read(folder)
        if any(run.glob("checkpoints/step_*")):
            Run(run).weights("best"), Run(run).weights("latest")
    except InputError as error:
        return f"left damaged: {error}"
    return ""


# ---- everything else that writes -----------------------------------------------------------------------------------


def other_commands(folder: Path) -> Iterator[Trial]:
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # so that a picture drawn again is the same file
    matplotlib.rcParams["svg.hashsalt"] = "the same"
    base, place = folder / "base", folder / "place"
    os.environ[CACHE] = str(place / "new/cache")
    prepare_base(place)  # where it will be used, because pictures of a run have its path as title
    place.rename(base)
    for name, line in COMMANDS.items():
        arguments = split(line, place)
        begin(base, place)
        steps = operations(place, arguments)
        wanted = fingerprint(place)
        for fault in FAULTS:
            for number in told_apart(steps):
                case = f"{name}: {fault} at {number} of {len(steps)}, `{steps[number - 1]}`"
                attempt = partial(survived, base, place, arguments, number, fault, wanted)
                yield Trial(f"disk {fault} in other commands", case, attempt)


def told_apart(steps: list[str]) -> list[int]:
    """The numbers of all operations; of the same one many times in a row (a file written in hundreds of pieces) the
    first, the middle and the last."""
    chosen, number = list[int](), 1
    for _, row in groupby(steps):
        count = len(list(row))
        chosen += (
            sorted({number, number + (count - 1) // 2, number + count - 1})
            if count > 3
            else range(number, number + count)
        )
        number += count
    return chosen


def split(line: str, place: Path) -> list[str]:
    """The words of a command, with paths into `place`."""
    mine = re.compile(r"run|encoder|foreign|text\.txt|data\.toml|out/.*|new/.*")
    return [f"{place}/{word}" if mine.fullmatch(word) else word for word in shlex.split(line)]


def prepare_base(base: Path) -> None:
    """A run, an encoder's run and a text; and the outputs of all commands, so that each has something to replace."""
    base.mkdir()
    (base / "out").mkdir()
    (base / "text.txt").write_text("1 2 3\n3 2 1\n2 2 2\n" * 20)
    (base / "data.toml").write_text('[data]\ntext = "text.txt"\ndocuments = "line"\n[tokenizer]\nkind = "characters"\n')
    counting = merge(RECIPE.to_dict(), {"data": {"task": "count"}, "model": {"encoder_layers": 1}})
    counting["model"].pop("decoder_layers")
    for name, recipe in (("run", RECIPE.to_dict()), ("encoder", counting)):
        (base / "recipe.toml").write_text(tomli_w.dumps(recipe))
        succeed(["train", str(base / "recipe.toml"), "--run", str(base / name), "--set", "training.keep_last=3"])
    words = [" ".join(WORDS[i % 7 : i % 7 + 5]) for i in range(40)]
    train_tokenizer(words, 280, workers=1).save(base / "foreign.json")
    write_foreign(base / "foreign", base / "foreign.json")
    (base / "new").mkdir()
    for line in COMMANDS.values():
        if " new/" not in line and "data" not in line:  # of these, the place must be empty
            succeed(split(line, base))


def succeed(arguments: list[str]) -> None:
    (end,) = command(arguments)
    if end.status:
        raise RuntimeError(f"clearhead {' '.join(arguments)} ended with {end.status}: {end.said}")


def begin(base: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(base, place)


def survived(base: Path, place: Path, arguments: list[str], number: int, fault: str, wanted: dict[str, Any]) -> str:
    """Each output is there, the old one or the new one, which are the same; and after that the command works."""
    begin(base, place)
    (end,) = command(arguments, lambda: intercept(place, fail_at(number, fault)))
    if wrong := complaint(end, place, fault):
        return wrong
    found = visible(fingerprint(place))
    made = {name for name in wanted if name.startswith("new/")}  # which may be missing, but not be half there
    if wrong := difference(
        found, {name: wanted[name] for name in visible(wanted) if name in found or name not in made}
    ):
        return wrong
    if end.status == 0 and made:
        return difference(found, visible(wanted))
    (end,) = command(arguments)
    if end.status:
        return f"tried again, it ended with status {end.status}: {end.said[-600:]}"
    return difference(visible(fingerprint(place)), visible(wanted))
