"""The `clearhead` command. Each command lives in a file of its own and imports torch only when it runs."""

import sys
from importlib import import_module
from pkgutil import iter_modules

import typer

from clearhead import __version__
from clearhead.cli import commands
from clearhead.cli.failures import refusal
from clearhead.cli.streams import abandon_output, prepare_streams
from clearhead.cli.usage import STYLE, UsageError, mistake
from clearhead.errors import InputError, visible

app = typer.Typer(
    name="clearhead",
    help="The Transformer, from scratch and in the clear: learn it, check your own against it, train and use it.",
    pretty_exceptions_enable=False,
    **STYLE,
)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clearhead {__version__}")
        raise typer.Exit


@app.callback()  # also keeps sub-commands sub-commands: typer makes an only command the whole program
def options(
    version: bool = typer.Option(
        False, "--version", callback=show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """What can be said before the command."""


# How the help begins; a command that is not listed here comes after these.
ORDER = (
    *("learn", "demo", "shapes", "profile", "plan", "data", "train", "average", "plot"),
    *("translate", "generate", "score", "evaluate", "predict", "encode", "attention", "ablate", "explore", "serve"),
)


def add_commands() -> None:
    """Every file of cli/commands is a command: a Typer called `app`, or a function of the file's name, which ends in _
    where Python has the word for itself."""
    found = sorted(module.name for module in iter_modules(commands.__path__))
    for name in sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        module = import_module(f"{commands.__name__}.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app)
        else:
            app.command(name.rstrip("_"))(getattr(module, name))


add_commands()


def main() -> None:
    """Run the command line; a user's mistake ends with one clear line and status 2, never with a traceback."""
    prepare_streams()
    try:
        try:
            # the same name however it was started, because shells remember completions by it
            status = app(prog_name="clearhead", standalone_mode=False)
        finally:
            sys.stdout.flush()  # here, where a reader who has left can be met, and not while Python shuts down
        sys.exit(status)
    except UsageError as error:
        if error.format_message():  # else nothing was asked for, and the help has been shown
            complain(mistake(error, sys.argv[1:], typer.main.get_command(app)))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        abandon_output()  # whoever read our output has left (`| head`): end quietly
        sys.exit(1)  # as typer does where it meets the same while the command still writes
    except Exception as error:
        said = str(error) if isinstance(error, InputError) else refusal(error)
        if said is None:
            raise
        complain(said)
        sys.exit(2)


def complain(said: str) -> None:
    """One line, whatever a message has in it; the words of a command may hold escapes, too."""
    print(f"clearhead: error: {visible(' '.join(said.splitlines()))}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except (InputError, BrokenPipeError):
        abandon_output()
