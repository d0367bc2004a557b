"""`clearhead learn watch`: a check at every save, with torch kept ready, and keys for the rest."""

import contextlib
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from clearhead.cli.learn_view import (
    header,
    hint_lines,
    screen,
    show_bug,
    show_checked,
    show_list,
    show_next,
)
from clearhead.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from clearhead.learn.folder import Folder
    from clearhead.learn.process import Checker

KEYS = "h hint · n next · s skip · l list · q quit"
PAUSE = 200  # milliseconds between looks at the keyboard


@contextlib.contextmanager
def single_keys() -> Iterator[None]:
    """Keys as they are pressed, without the Enter key; the terminal is left as it was."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def pressed() -> str:
    """The key that was pressed since the last look, or nothing."""
    if not select.select([sys.stdin], [], [], 0)[0]:
        return ""
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") or "q"  # the end of the input ends it too


class Watch:
    """What is on the screen: the verdict on one exercise."""

    def __init__(self, folder: "Folder", checker: "Checker", console: "Console") -> None:
        self.folder, self.checker, self.console = folder, checker, console
        self.name = folder.open_current()

    def clear(self) -> None:
        if self.console.is_terminal:
            self.console.clear()

    def foot(self) -> None:
        self.console.print(f"\n{KEYS}", style="dim")

    def check(self) -> None:
        """Check the exercise at hand and show the verdict."""
        from clearhead.learn.session import check_exercise

        self.clear()
        if self.name is None:
            show_next(self.console, self.folder)
            self.foot()
            return
        try:
            result = check_exercise(self.folder, self.name, self.checker)
        except InputError as error:  # the file is gone, or half written
            self.console.print(str(error), style="red")
            self.foot()
            return
        if not result.verdict.passed:
            header(self.console, self.folder, result.exercise)
        show_checked(self.console, self.folder, result)
        if result.verdict.passed and self.folder.current is None:
            show_next(self.console, self.folder)
        elif result.verdict.passed:
            self.console.print("\nn: the next exercise", style="bold")
        self.foot()

    def check_bug(self, name: str) -> None:
        from clearhead.learn.session import check_bug

        self.clear()
        show_bug(self.console, name, check_bug(self.folder, name, self.checker))
        self.foot()

    def saved(self, files: set[str]) -> None:
        """Some files have changed: the one at hand, another exercise, or one with a bug."""
        from clearhead.learn.exercises import file_names
        from clearhead.learn.session import bug_file, bug_touched

        self.folder.read_again()  # another terminal may have passed some
        for name in self.folder.order:
            if bug_file(name) in files and bug_touched(self.folder, name):
                self.check_bug(name)
                return
            if file_names()[name] in files and name == self.folder.current:
                self.name = name  # written on without pressing n
        if self.name is not None and file_names()[self.name] in files:
            self.check()

    def key(self, key: str) -> bool:
        """Do what a key asks for; False ends the watch."""
        from clearhead.learn.exercises import course

        if key in ("q", "\x03", "\x04"):
            return False
        self.folder.read_again()
        if key == "h" and self.name is not None:
            with self.folder.changing(self.name) as record:
                record.hints = min(3, record.hints + 1)
            self.console.print(hint_lines(course()[self.name], record.hints))
        elif key == "l":
            show_list(self.console, self.folder)
            self.foot()
        elif key == "s" and self.name is not None and self.folder.record(self.name).status == "open":
            self.folder.close(self.name, "skipped")
            self.name = self.folder.open_current()
            self.check()
        elif key == "n":
            if self.name is not None and self.folder.record(self.name).status == "open":
                self.console.print(f"{self.name} is not passed yet; s skips it")
            else:
                self.name = self.folder.open_current()
                self.check()
        return True


def stamps(folder: "Path") -> dict[str, int]:
    """When each file was last written."""
    found = {}
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # an editor's, which lives for a moment
            found[entry.name] = entry.stat().st_mtime_ns
    return found


def watch_folder(folder: "Folder") -> None:
    """Until q is pressed."""
    try:
        from watchfiles import watch
    except ImportError:
        raise InputError("watching needs one package more: pip install watchfiles") from None
    from clearhead.learn.process import Checker

    with Checker() as checker, single_keys():
        checker.warm()
        view, before = Watch(folder, checker, screen()), stamps(folder.path)
        view.check()
        options = {"recursive": False, "step": 50, "debounce": 100, "rust_timeout": PAUSE, "yield_on_timeout": True}
        for changes in watch(folder.path, **options):  # type: ignore[arg-type]
            files = {os.path.basename(path) for _, path in changes}
            if before:  # nobody watched while the first check ran
                files |= {name for name, stamp in stamps(folder.path).items() if before.get(name) != stamp}
                before = {}
            if files:
                view.saved(files)
            while key := pressed():
                if not view.key(key):
                    return
