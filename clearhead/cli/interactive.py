"""A prompt in a terminal: lines that can be edited and called back, and answers that appear as they are written.

Ctrl-C ends an answer, or clears the line; Ctrl-D leaves. What was typed is remembered from one time to the next, in
the user's own state folder (XDG_STATE_HOME, otherwise ~/.local/state).
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from clearhead.cli.filter import for_screen
from clearhead.errors import InputError, visible

REMEMBERED = 1000  # lines

try:
    import readline
except ImportError:  # where Python comes without it, lines are plain
    readline = None  # type: ignore[assignment]


def at_a_terminal() -> bool:
    """Whether somebody types and sees what is answered."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def converse(answer: Callable[[str, int], Iterable[str]], mark: str = "> ") -> None:
    """Answer line by line until the end of input; an answer gets the line and its number from 0."""
    memory = history_file()
    remember(memory)
    print("Enter a line; Ctrl-C ends an answer, Ctrl-D leaves.", file=sys.stderr)
    number = 0
    try:
        while True:
            try:
                line = input(mark)
            except KeyboardInterrupt:
                print()
                continue
            except EOFError:
                print()
                return
            except UnicodeDecodeError:
                print("clearhead: that was not UTF-8", file=sys.stderr)
                continue
            if not line.strip():
                continue
            try:
                for piece in answer(line, number):
                    sys.stdout.write(for_screen(piece))
                    sys.stdout.flush()
            except KeyboardInterrupt:
                pass
            except InputError as error:
                print(f"clearhead: {visible(str(error))}", file=sys.stderr)
                continue
            print()
            number += 1
    finally:
        keep(memory)


def history_file() -> Path | None:
    state = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(state) if state else Path("~/.local/state").expanduser()) / "clearhead" / "history"
    except RuntimeError:  # nobody knows where this user is at home
        return None


def remember(memory: Path | None) -> None:
    if readline is None or memory is None:
        return
    readline.set_history_length(REMEMBERED)
    try:
        readline.read_history_file(memory)
    except OSError:  # none yet, or not ours to read
        readline.clear_history()


def keep(memory: Path | None) -> None:
    """A place that cannot be written costs the history, not the conversation."""
    if readline is None or memory is None:
        return
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(memory)
    except OSError:
        pass
