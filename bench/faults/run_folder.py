"""Every file of a run, damaged in every way, under every command.

A command ends with status 0 and the result that it gives on the undamaged run, or with status 2 and a last line that
names the file; never with a traceback, a signal or a hang. What was whole stays whole: all other files have the bytes
they had, but for those that the command is there to write. Commands that take what is whole and leave the rest out
(a listing, a plot, an average, a training that goes on) may also say so and go on.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from bench.faults.fork import WORKSPACE
from bench.faults.forked import Ended, caching_in, call
from bench.faults.hostile import hostile
from bench.faults.outcome import Trial
from bench.faults.run_commands import COMMANDS, DESCRIBE, QUICK, Command

FAMILY = "a file of a run damaged"
MODEL = 'preset = "tiny"\nd_model = 8\nheads = 2\nd_ff = 8\nencoder_layers = 1\ndecoder_layers = 1\n'
TRAINING = """[training]
steps = 6
max_tokens = 64
warmup = 2
peak = 0.01
validate_every = 2
keep_last = 3
log_every = 1
samples = 0
threads = 1
"""
DATA = {
    "pairs": 'task = "copy"\nexamples = 60\nheld_out = 5\nsymbols = 6\nlongest = 6\n',
    "text": 'text = "text.txt"\ndocuments = "line"\ncontext = 16\n[tokenizer]\nvocab_size = 270\n',
    "counts": 'task = "count"\nexamples = 60\nheld_out = 5\nsymbols = 6\nlongest = 6\n',
    "labels": 'labelled = "labels.tsv"\n[tokenizer]\nkind = "characters"\n',
    "files": 'tsv = "pairs.tsv"\n[tokenizer]\nvocab_size = 270\n',
}
LINES = {
    "pairs": "1 2 3\n0 5\n",
    "text": "the cat sat\na dog\n",
    "counts": "1 2 3\n0 5\n",
    "labels": "the cat\na dog\n",
    "files": "the cat\na dog\n",
}


# ---- the runs ------------------------------------------------------------------------------------------------------


def prepare(folder: Path, kind: str, with_other: bool = False) -> None:
    """`folder` with a recipe, a run that it made, some lines, and perhaps another run of other sizes."""
    folder.mkdir()
    (folder / "text.txt").write_text("".join(f"the cat {n} sat on the mat and the dog {n * n}\n" for n in range(200)))
    (folder / "lines.txt").write_text(LINES[kind])
    (folder / "ids.txt").write_text("5 6 7\n\n8\n")
    (folder / "labels.tsv").write_text("".join(f"the cat {n}\tcat\na dog {n}\tdog\n" for n in range(20)))
    (folder / "pairs.tsv").write_text("".join(f"the cat {n}\t{n} cats\n" for n in range(60)))
    (folder / "recipe.toml").write_text(f"[model]\n{MODEL}[data]\n{DATA[kind]}{TRAINING}")
    (folder / "other.toml").write_text((folder / "recipe.toml").read_text().replace("d_ff = 8", "d_ff = 16"))
    (folder / "more.tsv").write_text((folder / "labels.tsv").read_text() + "no one\tnobody\nnothing\tnobody\n" * 9)
    differs = {"text": "tokenizer.vocab_size=280", "labels": "data.labelled=more.tsv"}
    other = ("--set", differs.get(kind, "data.symbols=7"))
    for words in (
        ("train", "recipe.toml", "--run", "whole"),
        ("average", "whole", "--last", "2"),
        *(
            (("train", "other.toml", "--run", "other", *other), ("average", "other", "--last", "2"))
            if with_other
            else ()
        ),
    ):
        ended = call(words, caching_in(folder / "cache"), folder)
        if ended.status != 0:
            raise RuntimeError(f"clearhead {' '.join(words)}: {ended.err}")


def files_of(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())


# ---- the damage: each takes the file and the same file of another run ------------------------------------------------

Damage = Callable[[Path, Path], None]


def replaced(change: Callable[[bytes], bytes]) -> Damage:
    def damage(path: Path, other: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return damage


def flipped(content: bytes) -> bytes:
    """One bit of a byte in the middle."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x40]) + content[middle + 1 :] if content else b"\xff"


def folder_instead(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


def link_to_nowhere(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def of_another_run(path: Path, other: Path) -> None:
    shutil.copy(other, path)


DAMAGES: dict[str, Damage] = {
    "missing": lambda path, other: path.unlink(),
    "empty": replaced(lambda content: b""),
    "truncated": replaced(lambda content: content[: len(content) // 2]),
    "flipped byte": replaced(flipped),
    "garbage": replaced(lambda content: bytes(range(256)) * 8),
    "a folder": folder_instead,
    "a link to nowhere": link_to_nowhere,
    "unreadable": lambda path, other: None,  # the process is refused it, see `refuse`
    "of another run": of_another_run,
    "deeply nested": replaced(lambda content: b"[" * 200_000),
    "a number of 5,000 digits": replaced(lambda content: b'{"step": ' + b"9" * 5000 + b"}"),
}


def refuse(path: Path) -> None:
    """From now on, and in this process for good, the file cannot be opened: so even root meets EACCES."""
    refused = str(path)

    def hear(event: str, given: tuple[Any, ...]) -> None:
        named = event == "open" and isinstance(given[0], str | bytes | os.PathLike)
        if named and os.path.abspath(os.fsdecode(given[0])) == refused:
            raise PermissionError(13, "Permission denied", refused)

    sys.addaudithook(hear)


# ---- one case ------------------------------------------------------------------------------------------------------


def prints(run: Path) -> dict[str, str]:
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in files_of(run)}


@dataclass(frozen=True)
class Bench:
    """A folder with a run of one kind, and what each command makes of it undamaged."""

    folder: Path
    kind: str
    right: dict[str, tuple[bytes, str]]  # as far as it was asked for

    def expected(self, name: str) -> tuple[bytes, str]:
        """The result of a command on the undamaged run."""
        if name not in self.right:
            command = COMMANDS[self.kind][name]
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="run-") as place:
                run = Path(place) / "damaged"
                shutil.copytree(self.folder / "whole", run)
                ended = call(self.words(command, str(run)), caching_in(self.folder / "cache"), self.folder)
                if ended.status != 0:
                    raise RuntimeError(f"clearhead {name} on a whole run: {ended.err}")
                self.right[name] = self.result(command, run, ended)
        return self.right[name]

    def words(self, command: Command, run: str) -> list[str]:
        out = f"{run}-out"
        return [run if word == "RUN" else word.replace("OUT", out, word[:3] == "OUT") for word in command.words]

    def result(self, command: Command, run: Path, ended: Ended) -> tuple[bytes, str]:
        """What the command is there for: its output (wherever the run lies), or the file that it writes."""
        out = ended.out.replace(str(run).encode(), b"RUN")
        path = run / command.result
        out = b"" if command.result or command.timed else out
        return out, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

    def attempt(self, name: str, damage: Callable[[Path], None], file: str, first: bool = False) -> str:
        """Damage a copy of the run, give it to a command; what went wrong, if anything did."""
        command = COMMANDS[self.kind][name]
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="run-") as place:
            run = Path(place) / "damaged"
            shutil.copytree(self.folder / "whole", run, symlinks=True)
            damage(run / file)
            before = prints(run)

            def begin() -> None:
                caching_in(self.folder / "cache")()
                if first:
                    refuse(run / file)

            ended = call(self.words(command, str(run)), begin, self.folder)
            return ended.fault() or self.judge(name, command, run, file, before, ended)

    def judge(self, name: str, command: Command, run: Path, file: str, before: dict[str, str], ended: Ended) -> str:
        if ended.status == 2 and not names(ended.complaint, file):
            return f"status 2, but {file} is not named: {ended.complaint}"
        right = self.expected(name) == self.result(command, run, ended)
        said = ended.out.decode("utf-8", "replace") + ended.err
        if ended.status == 0 and not right and not (command.leaves_out and names(said, file)):
            return f"status 0, but another result: {said[-300:]}"
        now = prints(run)
        for other, value in before.items():
            gone = ended.status == 0 and other.startswith("checkpoints/") and name == "train" and other not in now
            if (
                other != file
                and now.get(other) != value
                and not gone
                and not other.startswith(command.writes or ("\0",))
            ):
                return f"{other} is not what it was"
            if ended.status == 2 and other != file and other not in now:
                return f"{other} is gone"
        return ""


def names(text: str, file: str) -> bool:
    """Whether a message leads to the file: by its name, or for a checkpoint's file by the checkpoint."""
    parts = Path(file).parts
    if file == "config.toml" and "was begun with" in text:  # by a setting that it holds
        return True
    return parts[-1] in text or (len(parts) == 3 and parts[1] in text)


def benches(folder: Path, kinds: tuple[str, ...]) -> Iterator[Bench]:
    for kind in kinds:
        prepare(folder / kind, kind, with_other=True)
        yield Bench(folder / kind, kind, {})


def trials(small: bool) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(dir=WORKSPACE) as name:
        for bench in benches(Path(name), ("pairs",) if small else tuple(COMMANDS)):
            yield from cases(bench, 61, QUICK) if small else cases(bench, 1, tuple(COMMANDS[bench.kind]))


def names_one_of_ours(folder: Path, file: str) -> bool:
    """Whether the other run's file is a pointer that is as good here: nothing can tell it from the right one."""
    if file not in ("best", "latest"):
        return False
    return (folder / "whole" / "checkpoints" / (folder / "other" / file).read_text().strip()).is_dir()


def cases(bench: Bench, every: int, commands: tuple[str, ...]) -> Iterator[Trial]:
    """Every so-manieth of all cases of these commands."""
    number = 0
    other = bench.folder / "other"
    for file in files_of(bench.folder / "whole"):
        ways: list[tuple[str, Callable[[Path], None], bool]] = [
            (
                title,
                partial(lambda damage, path, file: damage(path, other / file), damage, file=file),
                title == "unreadable",
            )
            for title, damage in DAMAGES.items()
        ]
        ways += [(title, damage, False) for title, damage in hostile(file).items()]
        for title, damage, first in ways:
            for name in commands:
                command = COMMANDS[bench.kind][name]
                reads = any(fnmatch(file, pattern) for pattern in command.reads)
                # what only describes a file describes another run's as well, and these any sizes at all
                if (not reads and title != "garbage") or (title == "of another run" and name in DESCRIBE):
                    continue
                if name in ("shapes", "plan") and title.endswith(" = 1000000000"):
                    continue
                if title == "of another run" and names_one_of_ours(bench.folder, file):
                    continue
                number += 1
                if number % every == 0:
                    family = FAMILY if title in DAMAGES else "hostile values with right checksums"
                    attempt = partial(bench.attempt, name, damage, file, first)
                    yield Trial(family, f"{bench.kind}: {file}: {title}: {name}", attempt)
