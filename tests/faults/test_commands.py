"""Every command there is meets every class of faults, or there is a reason in writing why not."""

import typer

from bench.faults import disk, mistakes, run_commands
from clearhead.cli.main import app

COMMANDS = typer.main.get_command(app)


def every() -> set[tuple[str, ...]]:
    """All commands, by their words."""
    excepted, mistakes.ELSEWHERE = mistakes.ELSEWHERE, {}
    try:
        return {path for path, _ in mistakes.leaves(COMMANDS)}
    finally:
        mistakes.ELSEWHERE = excepted


def of(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command that these words call."""
    return words[: 2 if hasattr(COMMANDS.commands[words[0]], "commands") else 1]  # type: ignore[attr-defined]


def test_mistakes_are_made_with_every_command() -> None:
    assert {path for path, _ in mistakes.leaves(COMMANDS)} | mistakes.ELSEWHERE.keys() == every()


def test_every_command_gets_damaged_runs() -> None:
    tried = {of(command.words) for commands in run_commands.COMMANDS.values() for command in commands.values()}
    assert tried | run_commands.ELSEWHERE.keys() == every()
    assert not tried & run_commands.ELSEWHERE.keys()


def test_every_command_meets_a_disk_that_fails() -> None:
    tried = {of(tuple(line.split())) for line in disk.COMMANDS.values()} | {("train",)}
    assert tried | disk.ELSEWHERE.keys() == every()
    assert not tried & disk.ELSEWHERE.keys()
