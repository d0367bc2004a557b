"""The token store: text becomes ids once, into files that are mapped into memory whenever they are needed again.

A store is a folder in the cache, named after a sum of everything it was made of: the contents of the files, the
tokenizer, the settings that say how they are read. It holds columns, each a plain array in a file of its own: the ids
of all examples one after the other, where each example ends, the lines they come from. While it is made it only grows,
and a journal, written after the columns are on the disk, says how far they are right: what a killed process wrote
beyond that is cut off, and the work goes on there. Only what is complete gets its name, by a rename; what has it is
believed as long as every file has the size it was written with and was not touched since, or else (and whenever that is
asked for) the same SHA-256. What is not believed is made again.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.disk import clear_temporaries, locked, make_folder, put_in_place, remove, sync, write_whole
from clearhead.errors import InputError
from clearhead.reading import opened as opened_file

VERSION = 1  # of what is written; another one is another store
ABOUT, JOURNAL = "about.json", "journal.json"
EVERY = 5.0  # seconds between two entries of the journal: what a kill can cost
PIECE = 1 << 20  # bytes read at once for a sum
TEMPORARY = re.compile(r"\..+\.(\d+)")  # what a process writes beside its place
NOT_OURS = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what damaged notes end in


class Rising(NamedTuple):
    """Part of a column of growing numbers, counted from where the part begins; the next part begins `total` further."""

    values: NDArray[np.int64]
    total: int


Chunk = Mapping[str, NDArray[Any] | Rising]
Columns = dict[str, NDArray[Any]]


def cache_folder() -> Path:
    """`$CLEARHEAD_CACHE`, or where caches lie on this system. All of it can be removed at any time."""
    named = os.environ.get("CLEARHEAD_CACHE")
    beside = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(named).expanduser() if named else Path(beside).expanduser() / "clearhead"


def sum_of(described: Any) -> str:
    """The name of what is described, as JSON can."""
    return hashlib.sha256(json.dumps([VERSION, described], sort_keys=True).encode()).hexdigest()[:24]


# ---- the sums of files ---------------------------------------------------------------------------------------------


def digest(path: Path, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first so many bytes."""
    total, left = hashlib.sha256(), -1 if size is None else size
    with opened_file(path, pipes=False) as file:  # what is read again later must be a file
        while left and (piece := file.read(PIECE if left < 0 else min(PIECE, left))):
            total.update(piece)
            left -= len(piece) if left > 0 else 0
    return total.hexdigest()


def known_digest(path: Path, verify: bool = False) -> str:
    """SHA-256 of a file; the one that was computed before, if its size and time are still the same."""
    about = path.stat()
    note = cache_folder() / "sums" / (hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:24] + ".json")
    seen = [str(path.absolute()), about.st_size, about.st_mtime_ns]
    try:
        *before, found = json.loads(note.read_text())
        if before == seen and not verify and isinstance(found, str):
            return found
    except NOT_OURS:
        pass
    found = digest(path)
    make_folder(note.parent)
    write_whole(note, json.dumps([*seen, found]))
    return found


def sealed(content: dict[str, Any]) -> str:
    """As JSON, with a sum of all that it says."""
    return json.dumps({**content, "sum": sum_of(json.loads(json.dumps(content)))})


def unsealed(path: Path) -> dict[str, Any]:
    """What was sealed, unless something happened to it."""
    content = json.loads(path.read_text())
    if content.pop("sum") != sum_of(content):
        raise ValueError(f"{path}: damaged")
    return content


# ---- reading -------------------------------------------------------------------------------------------------------


class Store:
    """A complete store. `about` is what was written down of it; the columns of a part are mapped when asked for."""

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder, self.about = folder, about

    def columns(self, part: str) -> Columns:
        found: Columns = {}
        for name, (kind, size, _) in self.about["files"].items():
            owner, _, column = name.partition(".")
            if owner == part:
                dtype = np.dtype(kind)
                path = self.folder / name
                found[column] = np.memmap(path, dtype, "r") if size else np.zeros(0, dtype)
        return found

    def part(self, name: str) -> dict[str, Any]:
        return self.about["parts"][name]

    @property
    def size(self) -> int:
        return sum(size for _, size, _ in self.about["files"].values())


def opened(key: str, verify: bool = False) -> Store | None:
    """The store of this name if it is there, whole; with `verify`, every byte of it is read."""
    folder = cache_folder() / "stores" / key
    try:
        about = unsealed(folder / ABOUT)
        written = (folder / ABOUT).stat().st_mtime_ns  # after all others
        for name, (_, size, sha256) in about["files"].items():
            found = (folder / name).stat()
            doubtful = verify or found.st_mtime_ns > written
            if found.st_size != size or (doubtful and digest(folder / name) != sha256):
                return None
        return Store(folder, about)
    except NOT_OURS:
        return None


# ---- writing -------------------------------------------------------------------------------------------------------


class Writer:
    """A store that is being made, in a folder of its own beside its place."""

    def __init__(self, key: str) -> None:
        self.place = cache_folder() / "stores" / key
        self.folder = self.place.with_name(f".{key}.part")
        make_folder(self.folder)
        self.files: dict[str, IO[bytes]] = {}
        self.written = time.monotonic()
        try:
            self.state: dict[str, Any] = unsealed(self.folder / JOURNAL)
            for name, size in self.state["sizes"].items():
                os.truncate(self.folder / name, size)
                if (self.folder / name).stat().st_size != size:
                    raise ValueError
            for path in self.folder.iterdir():  # begun after the last entry
                if path.name not in (*self.state["sizes"], JOURNAL):
                    remove(path)
        except NOT_OURS:
            self._begin_again()

    def _begin_again(self) -> None:
        # blocks done, what each column is made of, how far the rising ones are, and what the work wants to remember
        self.state = {"blocks": 0, "kinds": {}, "sizes": {}, "bases": {}, "notes": {}}
        for path in self.folder.iterdir():
            remove(path)

    def append(self, part: str, chunk: Chunk) -> None:
        try:
            for column, value in chunk.items():
                name = f"{part}.{column}"
                if isinstance(value, Rising):
                    base = self.state["bases"].get(name, 0)
                    self.state["bases"][name] = base + value.total
                    value = value.values + base
                if name not in self.files:
                    known = name in self.state["sizes"]  # else whatever lies there is none of it
                    self.files[name] = (self.folder / name).open("ab" if known else "wb")
                    self.state["kinds"][name] = value.dtype.str
                self.files[name].write(np.ascontiguousarray(value).data)
        except OSError as error:
            raise self._refused(error) from None

    def commit(self, blocks: int, notes: dict[str, Any], force: bool = False) -> None:
        """Write down that so many blocks are done, now and then; what the journal says is on the disk before it."""
        if not force and time.monotonic() - self.written < EVERY:
            return
        try:
            for name, file in self.files.items():
                file.flush()
                os.fsync(file.fileno())
                self.state["sizes"][name] = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise self._refused(error) from None
        self.state |= {"blocks": blocks, "notes": notes}
        write_whole(self.folder / JOURNAL, sealed(self.state))
        self.written = time.monotonic()

    def finish(self, parts: dict[str, Any]) -> None:
        """Give what is complete its name."""
        self.commit(self.state["blocks"], self.state["notes"], force=True)
        self.close()
        files = {
            name: (kind, self.state["sizes"].get(name, 0), digest(self.folder / name))
            for name, kind in self.state["kinds"].items()
        }
        write_whole(self.folder / ABOUT, sealed({"files": files, "parts": parts}))
        try:
            (self.folder / JOURNAL).unlink()
            sync(self.folder)
            put_in_place(self.folder, self.place)
        except OSError as error:
            raise self._refused(error) from None

    def close(self) -> None:
        for file in self.files.values():
            try:
                file.close()
            except OSError as error:
                raise self._refused(error) from None
        self.files = {}

    def _refused(self, error: OSError) -> InputError:
        return InputError(f"cannot write {self.folder}: {error.strerror or error}; CLEARHEAD_CACHE names another place")


@contextmanager
def alone(key: str, told: Callable[[str], None]) -> Iterator[None]:
    """Hold the place of a store. Whoever makes the same one is waited for."""
    folder = cache_folder() / "locks" / key
    make_folder(folder)
    for place in ("sums", "tokenizers", "stores"):
        clear_temporaries(cache_folder() / place, TEMPORARY)  # of processes that were killed
    waiting = False
    while True:
        lock = locked(folder)
        try:
            lock.__enter__()
            break
        except InputError as error:
            if "in use by" not in str(error):
                raise
            if not waiting:
                told(f"waiting for another process that prepares the same data ({folder})")
            waiting = True
            time.sleep(0.2)
    try:
        yield
    finally:
        lock.__exit__(None, None, None)
