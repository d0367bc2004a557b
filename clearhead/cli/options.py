"""Arguments that several commands share."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli import completion
from clearhead.errors import InputError
from clearhead.ranges import MOST_THREADS
from clearhead.settings import parse_assignment

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", autocompletion=completion.runs)]
InputFile = Annotated[Path | None, typer.Argument(metavar="FILE", help="Lines to read; standard input unless given.")]
Checkpoint = Annotated[str, typer.Option(metavar="NAME", help="Which weights: best, latest, average or step_N.")]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda or mps.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_THREADS, metavar="N", help="CPU threads; chosen by model size unless given."),
]
Precision = Annotated[str, typer.Option(metavar="P", help="Of the weights while decoding: float32 or int8.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is already there.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting of the table `decoding`. Repeatable."),
]
RecipeSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change one setting. Repeatable.")
]


def finite(value: float | None) -> float | None:
    """For options that take a number: a nan lies within every range, and infinity within half of them."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("A finite number is wanted.")
    return value


def refuse_a_file(path: Path, option: str) -> None:
    """A folder is wanted: one that is there, or one that can be made."""
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise InputError(f"{option} {path}: {place} is a file, a folder is wanted")


@contextmanager
def left_as_it_was(path: Path) -> Iterator[None]:
    """What is refused leaves no folder behind: those that were made for it and are still empty go again."""
    made = [place for place in (path, *path.parents) if not place.exists()]
    try:
        yield
    except InputError:
        for place in made:
            with suppress(OSError):  # somebody has put something there: then it stays
                place.rmdir()
        raise


def refuse_to_replace(path: Path, force: bool) -> None:
    """What somebody made is not overwritten by a command that was not told to."""
    if path.is_file() and not force:
        raise InputError(f"{path} is already there: choose another name, or replace it with --force")


def chosen_settings(changes: list[str] | None) -> dict[str, Any]:
    """`--set top_k=5`, or `--set decoding.top_k=5`, as {"top_k": 5}."""
    settings: dict[str, Any] = {}
    for change in changes or []:
        settings |= parse_assignment(change.removeprefix("decoding."))
    return settings
