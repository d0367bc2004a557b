"""`clearhead checkpoints`: what a run has kept, and which of it is best and latest."""

import json
from dataclasses import asdict

import typer

from clearhead.cli.options import AsJson, RunFolder
from clearhead.errors import InputError, visible


def checkpoints(run: RunFolder, as_json: AsJson = False) -> None:
    """List the checkpoints of a run: step, size on disk, validation loss if known, and which are best and latest.

    The names are what `--checkpoint` of other commands takes. Where nothing was validated, best is latest. Files are
    not checked against their sums, so that listing is quick; a checkpoint that cannot be described says why.

    \b
    Examples:
      clearhead checkpoints runs/copy
      clearhead checkpoints runs/copy --json
    """
    from clearhead.cli.tables import amount, plain_table, screen
    from clearhead.run import Run

    opened = Run(run)
    kept = opened.inventory()
    for name in ("best", "latest"):
        try:
            opened.checkpoint(name)
        except InputError as error:
            if kept:
                typer.echo(f"clearhead: warning: {error}", err=True)
    if as_json:
        for one in kept:
            print(json.dumps(asdict(one)))
        return
    if not kept:
        typer.echo(f"{run} has no checkpoint yet", err=True)
        return
    table = plain_table("checkpoint", "step", "size", "validation loss", "")
    table.columns[-1].justify = "left"
    for one in kept:
        marks = [mark for mark, is_it in (("best", one.best), ("latest", one.latest)) if is_it]
        table.add_row(
            one.name,
            "–" if one.step is None else f"{one.step:,}",
            amount(one.bytes, "B"),
            "–" if one.loss is None else f"{one.loss:.4f}",
            ", ".join(marks + ["damaged"] * bool(one.problem)),
        )
    console = screen()
    console.print(table)
    for one in kept:
        if one.problem:
            console.print(visible(one.problem), style="dim", markup=False, soft_wrap=True)
