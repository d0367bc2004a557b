"""Filters: one line in, one line out, in order, whatever the line holds.

Lines are taken as they come: from a file in large pieces, so that they can be worked on together, and from a person or
a program that waits for each answer one by one. What is odd about a line is counted, and told on stderr at the end.
No line takes more memory than LONGEST_LINE bytes do: of a longer one the rest is passed over, and told.
"""

import codecs
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clearhead.errors import InputError, visible
from clearhead.reading import LONGEST_LINE, refuse_endless

PIECE = 1 << 16  # bytes asked for at a time; fewer are taken if there are fewer
TOO_LONG = f"longer than {LONGEST_LINE >> 20} MiB: the rest was left out"


class Oddities:
    """What was odd about which lines: counted, and told once on stderr."""

    def __init__(self) -> None:
        self.odd: dict[str, tuple[int, int, str]] = {}  # what was odd -> how many lines, the first, and a word on it

    def warn(self, number: int, what: str, detail: str = "") -> None:
        count, first, said = self.odd.get(what, (0, number, detail))
        self.odd[what] = count + 1, first, said

    def tell(self) -> None:
        for what, (count, first, detail) in self.odd.items():
            lines = "1 line" if count == 1 else f"{count:,} lines"
            said = f": {visible(detail)}" if detail else ""
            print(f"clearhead: warning: {lines} {what} (first: line {first}{said})", file=sys.stderr)


class Filter(Oddities):
    """Reads lines from a file or standard input, writes lines to standard output, and remembers what was odd."""

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self.file = None if file is None or str(file) == "-" else file
        self.count = 0

    def __iter__(self) -> Iterator[list[tuple[int, str]]]:
        """Numbered lines, as many at a time as there are to be had without waiting."""
        with self._opened() as handle, self._bar(handle) as advance:
            rest: list[bytes] = []
            length = 0  # of the line at hand, what was passed over included
            while piece := self._read(handle):
                advance(len(piece))
                *whole, last = piece.split(b"\n")
                if whole:
                    whole[0] = b"".join([*rest, whole[0]])
                    rest, length = [], 0
                    yield [self._clean(line) for line in whole]
                length += len(last)
                refuse_endless(length, self.file or "standard input")
                if length <= LONGEST_LINE + PIECE:  # enough to know that it is too long
                    rest.append(last)
            if any(rest):  # a last line without its newline
                yield [self._clean(b"".join(rest))]
        self.tell()

    def write(self, lines: list[str]) -> None:
        """Each becomes one line of output: what would break it in two becomes a space."""
        for line in lines:
            whole = for_screen(line.replace("\r\n", " ").replace("\n", " ").replace("\r", " "))
            sys.stdout.buffer.write(whole.encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()  # whoever feeds us line by line may wait for the answer

    def _clean(self, line: bytes) -> tuple[int, str]:
        self.count += 1
        if len(line) > LONGEST_LINE:
            self.warn(self.count, TOO_LONG)
            line = line[: codecs.utf_8_decode(line[:LONGEST_LINE], "replace", False)[1]]  # not within a character
        text = line.removesuffix(b"\r").decode("utf-8", "replace")
        if "\ufffd" in text and not _is_utf8(line):
            self.warn(self.count, "not UTF-8: what could not be read became U+FFFD")
        if "\0" in text:
            self.warn(self.count, "with NUL characters: they became U+FFFD")
            text = text.replace("\0", "\ufffd")
        return self.count, text

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if self.file is None:
            yield sys.stdin.fileno()
            return
        try:
            handle = os.open(self.file, os.O_RDONLY)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            raise InputError(f"cannot read {self.file}: {getattr(error, 'strerror', None) or error}") from None
        try:
            yield handle
        finally:
            os.close(handle)

    def _read(self, handle: int) -> bytes:
        try:
            return os.read(handle, PIECE)
        except OSError as error:
            raise InputError(f"cannot read {self.file or 'standard input'}: {error.strerror}") from None

    @contextmanager
    def _bar(self, handle: int) -> Iterator[Callable[[int], object]]:
        """A bar for a file, if somebody is watching and the output does not go to the same screen."""
        if self.file is None or not sys.stderr.isatty() or sys.stdout.isatty():
            yield lambda count: None
            return
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TimeRemainingColumn

        bars = Progress("{task.description}", BarColumn(), TimeRemainingColumn(), console=Console(stderr=True))
        with bars:
            task = bars.add_task(escape(visible(self.file.name)), total=os.fstat(handle).st_size)
            yield lambda count: bars.advance(task, count)


def for_screen(text: str) -> str:
    """What a model wrote or a file holds, as it is, unless it goes to a terminal: there, control characters other than
    line ends and tabs are written out, because they would be obeyed."""
    return visible(text, keep="\n\t") if sys.stdout.isatty() else text


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
