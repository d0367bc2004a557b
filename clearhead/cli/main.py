"""The `clearhead` command. Each command lives in a file of its own and imports torch only when it runs."""

import os
import sys

import typer

from clearhead import __version__
from clearhead.cli import (
    attention,
    average,
    demo,
    doctor,
    encode,
    evaluate,
    generate,
    lab,
    plot,
    profile,
    score,
    shapes,
    tokenizer,
    train,
    translate,
)
from clearhead.cli.usage import STYLE, UsageError, mistake
from clearhead.errors import InputError

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


# Every command, in the order of the help. `app.command("name")(module.function)`, or `app.add_typer(module.app)`.
app.command()(shapes.shapes)
app.command()(profile.profile)
app.command()(demo.demo)
app.command("train")(train.train)
app.command()(average.average)
app.command()(plot.plot)
app.command()(translate.translate)
app.command()(generate.generate)
app.command()(score.score)
app.command()(evaluate.evaluate)
app.command()(encode.encode)
app.command()(attention.attention)
app.add_typer(tokenizer.app)
app.add_typer(lab.app)
app.command()(doctor.doctor)


def main() -> None:
    """Run the command line; a user's mistake ends with one clear line and status 2, never with a traceback."""
    try:
        try:
            # the same name however it was started, because shells remember completions by it
            status = app(prog_name="clearhead", standalone_mode=False)
        finally:
            sys.stdout.flush()  # here, where a reader who has left can be met, and not while Python shuts down
        sys.exit(status)
    except InputError as error:
        print(f"clearhead: error: {error}", file=sys.stderr)
        sys.exit(2)
    except UsageError as error:
        if error.format_message():  # else nothing was asked for, and the help has been shown
            print(f"clearhead: error: {mistake(error, sys.argv[1:], typer.main.get_command(app))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # whoever read our output has left (`| head`): end quietly, and keep Python from flushing into the void
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)  # as typer does where it meets the same while the command still writes
