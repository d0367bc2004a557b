"""`clearhead plot`: loss, learning rate and gradient norm of a run, as pictures."""

from pathlib import Path
from typing import Annotated

import typer


def plot(run: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Draw loss, learning rate and gradient norm by step into RUN/plots, as PNG and SVG.

    Example: clearhead plot runs/dates
    """
    from clearhead.run import Run
    from clearhead.training.plot import plot

    for path in plot(Run(run)):
        typer.echo(path)
