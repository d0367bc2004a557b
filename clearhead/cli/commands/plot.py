"""`clearhead plot`: loss, learning rate and gradient norm of a run, as pictures."""

import typer

from clearhead.cli.options import RunFolder


def plot(run: RunFolder) -> None:
    """Draw loss, learning rate and gradient norm by step into RUN/plots, as PNG and SVG.

    \b
    Example:
      clearhead plot runs/dates
    """
    from clearhead.run import Run
    from clearhead.training.plot import plot

    for path in plot(Run(run)):
        typer.echo(path)
