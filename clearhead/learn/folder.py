"""A learner's folder: ordinary Python files, and `progress.json`, which is all that is remembered.

The exercises are those of the course, or those that a teacher's TOML names, in its order:

    title = "Attention in an afternoon"
    exercises = ["attention", "masks", "heads", "multihead"]
"""

import contextlib
import difflib
import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clearhead.disk import locked, write_whole
from clearhead.errors import InputError
from clearhead.reading import SETTINGS
from clearhead.run import read_toml
from clearhead.settings import nearest

PROGRESS = "progress.json"
FORMAT = "clearhead-learn-1"
PASSED, SKIPPED, OPEN = "passed", "skipped", "open"
MOST_CHANGED = 3  # lines of a file with a bug


@dataclass
class Record:
    """What is remembered of one exercise."""

    status: str = OPEN
    opened: float = 0.0  # when it first was the current one
    closed: float = 0.0  # when it was passed or skipped
    checks: int = 0
    hints: int = 0
    bug: str = ""  # "found", once it is
    digest: str = ""  # of the file that passed


@dataclass
class Folder:
    """A folder in which somebody learns."""

    path: Path
    order: list[str]
    title: str = ""
    records: dict[str, Record] = field(default_factory=dict)

    # ---- which exercise ---------------------------------------------------------------------------------------------

    @property
    def current(self) -> str | None:
        """The first exercise that is neither passed nor skipped."""
        return next((name for name in self.order if self.record(name).status == OPEN), None)

    def record(self, name: str) -> Record:
        return self.records.setdefault(name, Record())

    def own(self) -> list[str]:
        """Exercises that later ones may build on: those passed."""
        return [name for name, record in self.records.items() if record.status == PASSED]

    def find(self, name: str | None) -> str:
        """An exercise by name, number or file, or the current one."""
        if name is None:
            if self.current is None:
                raise InputError("every exercise is done; name the one you mean")
            return self.current
        plain = re.sub(r"^ex\d\d_|\.py$", "", Path(name).name)
        if plain.isdecimal() and 1 <= int(plain) <= len(self.order):
            return self.order[int(plain) - 1]
        if plain not in self.order:
            close = difflib.get_close_matches(plain[:100], self.order, n=1)
            known = f"1 to {len(self.order)} are {', '.join(self.order)}"
            how = f"did you mean {close[0]!r}?" if close else known
            raise InputError(f"no exercise {name!r} in this folder; {how}")
        return plain

    def number(self, name: str) -> str:
        return f"{self.order.index(name) + 1}/{len(self.order)}"

    # ---- what is remembered -----------------------------------------------------------------------------------------

    def open_current(self) -> str | None:
        """The current exercise; the clock starts when it is first looked at."""
        self.read_again()
        name = self.current
        if name is not None and not self.record(name).opened:
            with self.changing(name) as record:
                record.opened = record.opened or time.time()
        return name

    def close(self, name: str, status: str, digest: str = "") -> bool:
        """Passed, with the digest of its file, or skipped; whether that is new."""
        with self.changing(name) as record:
            newly = record.status != PASSED
            if newly:
                record.status, record.closed = status, time.time()
            record.digest = digest or record.digest
        return newly

    def digest(self, name: str) -> str:
        """Of an exercise's file as it is; nothing if it is gone."""
        from clearhead.learn.exercises import file_names  # torch comes with it

        file = self.path / file_names()[name]
        with contextlib.suppress(OSError):
            return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else ""
        return ""

    def changed(self, name: str) -> str:
        """Whether a passed exercise's file is another by now, in words."""
        record, now = self.record(name), self.digest(name)
        if record.status != PASSED or record.digest in ("", now):
            return ""
        return ", file changed since" if now else ", file not there now"

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[Record]:
        """The record of one exercise, to be changed and written. The others are as the file has them now: another
        terminal may have passed one since we read it."""
        with locked(self.path, wait=True):
            self.read_again()
            yield self.record(name)
            self.save()

    def read_again(self) -> None:
        if (self.path / PROGRESS).is_file():
            self.records = parse(self.path).records

    def save(self) -> None:
        row: dict[str, Any] = {"format": FORMAT, "title": self.title, "exercises": self.order}
        row["progress"] = {name: asdict(record) for name, record in self.records.items()}
        write_whole(self.path / PROGRESS, (json.dumps(row, indent=1) + "\n").encode())


def read_folder(path: Path) -> Folder:
    """The folder at this path or above it."""
    for place in (path.resolve(), *path.resolve().parents):
        if (place / PROGRESS).is_file():
            return parse(place)
    below = sorted(file.parent.name for file in path.glob(f"*/{PROGRESS}"))
    if any(path.glob("ex[0-9][0-9]_*.py")):
        how = "`clearhead learn start .` makes it anew, and what you wrote stays; check again what had passed"
        raise InputError(f"{path.resolve()} has exercises, but {PROGRESS} is gone: {how}")
    how = f"`cd {below[0]}` goes to one" if below else "`clearhead learn start mine` makes one, then `cd mine`"
    raise InputError(f"{path.resolve()} is no folder of the course: {how}")


def parse(path: Path) -> Folder:
    from clearhead.reading import read_whole

    file = path / PROGRESS
    try:
        row = json.loads(read_whole(file, SETTINGS))
        assert row["format"] == FORMAT
        records = {name: Record(**record) for name, record in row["progress"].items()}
        return Folder(path, list(row["exercises"]), str(row["title"]), records)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        if isinstance(error, InputError):
            raise
        how = f"remove it; `clearhead learn start {path}` makes it anew, and what you wrote stays"
        raise InputError(f"{file} is damaged: {how}") from None


def read_course(path: Path, known: list[str]) -> tuple[str, list[str]]:
    """Title and exercises of a teacher's file."""
    row = read_toml(path)
    wrong = sorted(set(row) - {"title", "exercises"})
    if wrong:
        raise InputError(f"{path}: unknown key {wrong[0]!r}{nearest(wrong[0], ['title', 'exercises'])}")
    names, title = row.get("exercises"), row.get("title", "")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: exercises must be a list of names, not {names!r:.80}")
    if not isinstance(title, str):
        raise InputError(f"{path}: title must be a text, not {title!r:.80}")
    for name in names:
        if name not in known:
            raise InputError(f"{path}: exercises: no exercise {name!r}{nearest(name, known)}")
        if names.count(name) > 1:
            raise InputError(f"{path}: exercises: {name!r} is named twice")
    return title, names


def changed_lines(before: str, after: str) -> int:
    """How many lines of a file were changed, taken out or put in."""
    count = 0
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            count += max(b - a, d - c)
    return count
