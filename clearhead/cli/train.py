"""`clearhead train`: from a recipe to a model in a run folder; the same command again goes on where it stopped."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """
Examples:

  clearhead train copy                                     a packaged recipe, into runs/copy

  clearhead train dates --set training.steps=300           any key of the recipe can be set

  clearhead train my.toml --run runs/mine                  a recipe of your own

  clearhead train multi30k --dump-config > my.toml         start one from another

  torchrun --nproc-per-node 2 -m clearhead train copy      two processes
"""


def train(
    recipe: Annotated[str, typer.Argument(help="The name of a packaged recipe, or the path of a TOML file.")],
    run: Annotated[
        Path | None, typer.Option(help="The run folder; runs/RECIPE unless given. If it holds a run, that goes on.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change one setting. Repeatable.")
    ] = None,
    dump_config: Annotated[
        bool, typer.Option("--dump-config", help="Print the recipe with all defaults filled in, and do nothing else.")
    ] = False,
) -> None:
    """Train a model by a recipe. Run the same command again to resume."""
    from clearhead.training.config import load_recipe

    loaded = load_recipe(recipe, set_ or ())
    if dump_config:
        from clearhead.run import to_toml

        typer.echo(to_toml(loaded.to_dict()), nl=False)
        return
    from clearhead.training.session import train

    outcome = train(loaded, run or Path("runs") / Path(recipe).stem)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)


train.__doc__ = f"{train.__doc__}\n\n\b\n{EXAMPLES}"
