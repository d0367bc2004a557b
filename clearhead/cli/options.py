"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.chosen import assignment

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
InputFile = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Lines to read; standard input unless given.")]
Checkpoint = Annotated[str, typer.Option(metavar="NAME", help="Which weights: best, latest, average or step_N.")]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda or mps.")]
Threads = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="CPU threads; chosen by model size unless given.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting of the table `decoding`. Repeatable."),
]


def chosen_settings(changes: list[str] | None) -> dict[str, Any]:
    """`--set top_k=5`, or `--set decoding.top_k=5`, as {"top_k": 5}."""
    settings: dict[str, Any] = {}
    for change in changes or []:
        settings |= assignment(change.removeprefix("decoding."))
    return settings
