"""What the command line says about itself: help that keeps its lines, and a mistake in the words told in one line."""

import inspect
import typing
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from clearhead.cli.invocation import invocation
from clearhead.errors import InputError
from clearhead.settings import nearest

# What a wrong option or value raises. It is click's, which typer either imports or brings along under another name.
UsageError: Any = typer.BadParameter.__base__


class Commands(TyperGroup):
    """A group of commands: their help is set as it was written, and a misspelt one is answered with its like."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            command.help = reflowed(command.help or "")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            raise InputError(f"no command {word!r}{nearest(word, list(self.commands))}")
        found = super().resolve_command(ctx, args)
        if found[1] is not None and not hasattr(found[1], "commands") and not ctx.resilient_parsing:
            refuse_doubtful(found[1], ctx, list(found[2]))
        return found


# what the program and its groups of commands have in common
STYLE: dict[str, Any] = {
    "cls": Commands,
    "no_args_is_help": True,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def refuse_doubtful(command: Any, above: Any, words: list[str]) -> None:
    """Words that could be read, but hardly as they were meant: an option twice, or a path that is empty.

    Of two values click would take the last, and an empty path is the folder one stands in: `--run "$UNSET"`.
    """
    context = command.context_class(command, info_name=command.name, parent=above, **command.context_settings)
    given, _, order = command.make_parser(context).parse_args(args=words)
    types = typing.get_type_hints(inspect.unwrap(command.callback))
    for number, option in enumerate(order):
        name = next((name for name in option.opts if name.startswith("--")), option.opts[0])
        flag = getattr(option, "is_flag", False)
        if option in order[:number] and not (option.multiple or flag):
            raise InputError(f"{name} is given twice: give it once")
        value = given.get(option.name)
        if "" in (value if isinstance(value, list | tuple) else [value]) and "Path" in str(types.get(option.name)):
            what = name if name.startswith("-") else option.metavar
            raise InputError(f"{what} is empty: the path of a file or folder is wanted")


def reflowed(text: str) -> str:
    """A docstring for a screen of any width: paragraphs flow, but for those marked with a line \\b, the examples."""
    # typer takes off the indentation that all lines but the first have in common; an empty tag is not indentation
    return "\n\n".join(
        paragraph.removeprefix("\b\n").replace("\n  ", "\n[dim][/]  ")
        if paragraph.startswith("\b")
        else " ".join(paragraph.split())
        for paragraph in text.strip().split("\n\n")
    )


def mistake(error: Any, words: Sequence[str], program: Any) -> str:
    """What is wrong with the `words` after `clearhead`, and where to read on, in one line."""
    path: list[str] = []
    command = program
    for word in words:
        if word in getattr(command, "commands", {}):
            path, command = [*path, word], command.commands[word]
    said = " ".join(error.format_message().split()).rstrip(".")
    said = said[:1].lower() + said[1:]
    if hasattr(error, "possibilities"):  # an option that does not exist
        known = [name for option in command.params for name in option.opts if name.startswith("-")]
        said = f"no option {error.option_name}{nearest(error.option_name, [*known, '--help'])}"
    elif given := given_value(error, words):
        said = f"{given}: {error.message[:1].lower()}{error.message[1:].rstrip('.')}"
    return f"{said} (see `{' '.join([invocation(), *path])} --help`)"


def given_value(error: Any, words: Sequence[str]) -> str:
    """`--threads two`, if that is what the error is about."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for place, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in names and name.startswith("-"):
            return f"{name} {value or ''.join(words[place + 1 : place + 2])}"
    return ""
