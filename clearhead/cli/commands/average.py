"""`clearhead average`: the mean of several checkpoints, which is usually better than each of them."""

from typing import Annotated

import typer

from clearhead.cli.options import RunFolder
from clearhead.errors import InputError


def average(
    run: RunFolder,
    last: Annotated[int | None, typer.Option(help="Average this many of the newest checkpoints (default 5).")] = None,
    best: Annotated[int | None, typer.Option(help="Or this many of those with the lowest validation loss.")] = None,
) -> None:
    """Average checkpoints of a run into its checkpoint `average`, as the paper did (section 6.1).

    Only checkpoints that were kept can be averaged: see training.keep_last, keep_best and average.

    \b
    Examples:
      clearhead average runs/multi30k --last 5
      clearhead evaluate runs/multi30k --checkpoint average
    """
    from clearhead.run import Run
    from clearhead.training.checkpoint import average

    if last is not None and best is not None:
        raise InputError(f"--last {last} and --best {best}: give one of them")
    count = best or (5 if last is None else last)
    if count < 1:
        raise InputError(f"the number of checkpoints must be at least 1, not {count}")
    used = average(Run(run), count, "best" if best is not None else "last")
    typer.echo(f"averaged {len(used)}: {', '.join(folder.name for folder in used)}", err=True)
