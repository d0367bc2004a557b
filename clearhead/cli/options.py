"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli import completion
from clearhead.errors import InputError
from clearhead.settings import parse_assignment

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", autocompletion=completion.runs)]
InputFile = Annotated[Path | None, typer.Argument(metavar="FILE", help="Lines to read; standard input unless given.")]
Checkpoint = Annotated[str, typer.Option(metavar="NAME", help="Which weights: best, latest, average or step_N.")]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda or mps.")]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="CPU threads; chosen by model size unless given.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is already there.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting of the table `decoding`. Repeatable."),
]
RecipeSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change one setting. Repeatable.")
]


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
