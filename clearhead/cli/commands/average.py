"""`clearhead average`: the mean of several checkpoints, which is usually better than each of them."""

from typing import Annotated

import typer

from clearhead.cli.options import RunFolder
from clearhead.errors import InputError


def average(
    run: RunFolder,
    last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Average this many of the newest checkpoints (default 5).")
    ] = None,
    best: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Or this many of those with the lowest validation loss.")
    ] = None,
) -> None:
    """Average checkpoints of a run into its checkpoint `average`, as the paper did (section 6.1).

    Only checkpoints that were kept can be averaged: see training.keep_last, keep_best and average.

    \b
    Examples:
      clearhead average runs/multi30k --last 5
      clearhead evaluate runs/multi30k --checkpoint average
    """
    from clearhead.run import Run
    from clearhead.settings import from_dict
    from clearhead.training.checkpoint import average, regular
    from clearhead.training.config import TrainingSettings

    if last is not None and best is not None:
        raise InputError(f"--last {last} and --best {best}: give one of them")
    opened = Run(run)
    asked = last if best is None else best
    if asked is not None:
        settings = from_dict(TrainingSettings, opened.settings.get("training", {}), "training.")
        kept = [
            one
            for one in opened.inventory()
            if one.name != "average" and (one.loss is not None if last is None else regular(one.step or 0, settings))
        ]
        if len(kept) < asked:
            what = "checkpoints to average" if best is None else "checkpoints with a validation loss"
            option = f"--last {asked}" if best is None else f"--best {asked}"
            why = f"see training.keep_last and keep_best in {opened.path / 'config.toml'}"
            raise InputError(f"{option}: {run} has kept {len(kept)} {what}; {why}")
    used = average(opened, asked or 5, "last" if best is None else "best")
    typer.echo(f"averaged {len(used)}: {', '.join(folder.name for folder in used)}", err=True)
