"""From files to a token store: read in a stream, cut into blocks, encoded on all cores, written in order.

The reading is done here, once over the text for each thing that must be known first: how long a stream is (to cut off
its validation), which words there are (to learn a tokenizer), the ids. All passes read by the same code and see the
same rows in the same order, so a killed preparation reads again what it had, which is quick, and encodes only what it
had not. Encoding is all but a tenth of the work, and each block of it is independent.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clearhead.data.batch import Tally
from clearhead.data.columns import Note
from clearhead.data.files import expand, find, refuse_missing
from clearhead.data.labelled import Row, read_rows
from clearhead.data.parallel import PairRow, hold_out, read_pairs
from clearhead.data.seen import Seen
from clearhead.data.settings import DataSettings, entries
from clearhead.data.store import ABOUT, Store, Writer, alone, cache_folder, known_digest, opened, sum_of
from clearhead.data.text import Piece, read_text
from clearhead.errors import InputError
from clearhead.tokenizer.corpus import in_order

BLOCK = 1 << 19  # characters that are encoded at once
Report = Callable[[str], None]


def silent(line: str) -> None:
    pass


@dataclass(frozen=True)
class Corpus:
    """Files that are read together: the training data, or one validation or test set."""

    kind: str  # source, tsv, text or labelled
    groups: tuple[tuple[Path, ...], ...]  # the files of each corpus; of two parallel ones, both
    settings: DataSettings
    part: str = "train"
    share: float | None = None  # of training data: how much is held out

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.part,) if self.share is None else ("train", "validation")

    @property
    def names(self) -> tuple[str, ...]:
        """Of each corpus, for messages."""
        return tuple(" and ".join(dict.fromkeys(map(str, paths))) for paths in self.groups)

    @property
    def files(self) -> str:
        paths = [path for paths in self.groups for path in paths]
        if self.kind == "text" and len(paths) > 1:
            return f"{paths[0]} and {len(paths) - 1:,} more"
        return self.names[0] if len(self.groups) == 1 else f"{self.names[0]} and {len(self.groups) - 1} more"

    def size(self) -> int:
        return sum(path.stat().st_size for paths in self.groups for path in paths)

    def describe(self, recorded: dict[str, str] | None = None, verify: bool = False) -> dict[str, Any]:
        """All that the rows depend on. `recorded` are the sums of files that may be gone."""
        keys = ("documents", "text_column", "second_column", "label_column", "source_column", "target_column")
        settings = {key: getattr(self.settings, key) for key in (*keys, "min_length", "max_ratio", "deduplicate")}
        sums = [
            [(recorded or {}).get(str(path)) or known_digest(path, verify) for path in paths] for paths in self.groups
        ]
        apart = self.settings.weights is not None and self.settings.documents == "none"  # a stream for each
        return {"kind": self.kind, "sums": sums, "part": self.part, "share": self.share, "apart": apart, **settings}

    def rows(self, tally: Tally, labels: "LabelTable | None" = None) -> Iterator[tuple[str, int, Any]]:
        """Each usable row, with its part and the number of its corpus."""
        if self.kind == "text":
            yield from read_text(self.groups, self.settings, self.share, self.part, tally)
            return
        for part, (number, row) in hold_out(self.examples(tally), self.share, self.part):
            labelled = labels is not None and isinstance(row, Row)
            yield part, number, (row, labels.note(part, row)) if labelled else row  # type: ignore[union-attr,arg-type]

    def examples(self, tally: Tally) -> Iterator[tuple[int, PairRow | Row]]:
        strict = self.part != "train"
        seen = Seen() if self.settings.deduplicate and not strict else None
        columns = self.settings.source_column, self.settings.target_column
        for number, paths in enumerate(self.groups):
            found: Iterator[PairRow | Row]
            if self.kind == "labelled":
                found = read_rows(paths[0], self.settings, strict, tally)
            else:
                found = read_pairs(paths, columns, strict, tally)
            for row in found:
                if seen is not None and seen(*map(str, row[1:])):
                    tally.note("there before", f"{self.names[number]}, line {row.line}")
                else:
                    yield number, row

    def texts(self) -> Iterator[tuple[str, ...]]:
        """What a tokenizer is learned from: the texts of the training rows; of pairs, source and target."""
        for part, _, row in self.rows(Tally()):
            if part == "train":
                yield row[:1] if isinstance(row, Piece) else tuple(text for text in row[1:3] if text)


def corpora(settings: DataSettings, split: str, recorded: dict[str, Any] | None = None) -> list[Corpus]:
    """What the settings name for training ("", one corpus of all files), "validation_" or "test_" (each a set). Files
    that are gone are those that a run has `recorded`."""
    kind = settings.kind()
    keys = ("source", "target") if kind == "source" else (kind,)
    named = [getattr(settings, split + key) for key in keys]
    if named[0] is None:
        return []
    found = []
    for together in zip(*map(entries, named), strict=True):
        if kind == "text":
            paths = find_or_recall(together[0], recorded)
        else:
            paths = [expand(file) for file in together]
            for path in paths:
                if str(path) not in (recorded or {}):
                    refuse_missing(path)
        found.append(tuple(paths))
    if split:
        part = split.removesuffix("_")
        return [Corpus(kind, (group,), settings, part) for group in found]
    held_out = getattr(settings, "validation_" + keys[0]) is None
    return [Corpus(kind, tuple(found), settings, "train", settings.validation_share if held_out else None)]


def find_or_recall(pattern: str, recorded: dict[str, Any] | None) -> list[Path]:
    """The files of a pattern; if they are gone, those that were there."""
    try:
        return find(pattern)
    except InputError:
        path = expand(pattern)
        gone = [Path(one) for one in recorded or () if one == str(path) or Path(one).match(str(path))]
        if not gone:
            raise
        return gone


@dataclass
class LabelTable:
    """The labels of labelled text, numbered as they come up, and how often each part has them, and where first."""

    numbers: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    pairs: bool = False

    def note(self, part: str, row: Row) -> int:
        self.pairs = self.pairs or row.second is not None
        self.counts.setdefault(part, {}).setdefault(row.label, [0, row.line])[0] += 1
        return self.numbers.setdefault(row.label, len(self.numbers))


# ---- the work ------------------------------------------------------------------------------------------------------


@dataclass
class Block:
    """Some rows, by part."""

    rows: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    size: int = 0  # characters


class Work:
    """What is done with a block, in whichever process."""

    def __init__(self, encode: Callable[..., tuple[Any, Note]], files: str) -> None:
        self.encode, self.files = encode, files

    def __call__(self, block: Block) -> dict[str, tuple[Any, Note]]:
        return {part: self.encode(rows, part == "train", self.files) for part, rows in block.rows.items()}


def blocks_of(corpus: Corpus, tally: Tally, labels: LabelTable | None) -> Iterator[Block]:
    block = Block()
    for part, number, row in corpus.rows(tally, labels):
        block.rows.setdefault(part, []).append((number, row))
        texts = row[:1] if isinstance(row, Piece) else (row[0] if labels is not None else row)[1:3]
        block.size += sum(len(text) for text in texts if text)
        if block.size >= BLOCK:
            yield block
            block = Block()
    if block.rows:
        yield block


def prepared(
    corpus: Corpus,
    encode: Callable[..., tuple[Any, Note]],
    made_of: Any,  # what the ids depend on besides the corpus, as JSON can describe it
    report: Report = silent,
    recorded: dict[str, str] | None = None,
    verify: bool = False,
    workers: int | None = None,
) -> Store:
    """The store of a corpus: found, or made now."""
    described = corpus.describe(recorded, verify)
    key = sum_of([described, made_of])
    if (store := opened(key, verify)) is not None:
        return store
    with alone(key, report):
        if (store := opened(key, verify)) is None:
            for paths in corpus.groups:
                for path in paths:
                    refuse_missing(path)
            make(corpus, encode, key, report, workers)
            if corpus.describe() != described:
                raise InputError(f"{corpus.files} changed while it was read: run the command again")
            store = opened(key)
    if store is None:
        raise InputError(f"cannot read {cache_folder() / 'stores' / key / ABOUT}, though it was just written")
    return store


def make(
    corpus: Corpus, encode: Callable[..., tuple[Any, Note]], key: str, report: Report, workers: int | None = None
) -> None:
    """Write the store, or the rest of it."""
    writer = Writer(key)
    done: int = writer.state["blocks"]
    notes = {part: Note(writer.state["notes"].get(part)) for part in corpus.parts}
    tally, labels = Tally(), LabelTable() if corpus.kind == "labelled" else None
    if done:
        report(f"{corpus.files}: the first {done:,} blocks were prepared before")
    number = 0

    def left() -> Iterator[Block]:
        for count, block in enumerate(blocks_of(corpus, tally, labels), 1):
            if count > done:
                yield block
            else:
                advance(block.size)

    try:
        with bar(f"preparing {Path(corpus.files.partition(' and ')[0]).name}", corpus.size()) as advance:
            number = done
            for made, size in in_order(Work(encode, corpus.files), left(), workers):
                number += 1
                for part, (chunk, note) in made.items():
                    writer.append(part, chunk)
                    notes[part].add(note)
                writer.commit(number, {part: note.to_dict() for part, note in notes.items()})
                advance(size)
        writer.commit(number, {part: note.to_dict() for part, note in notes.items()}, force=True)
        skipped = [[one.count, one.reason, one.first, one.what] for one in tally.skipped()]
        parts: dict[str, Any] = {
            part: {**note.to_dict(), "skipped": skipped if number_ == 0 else []}
            for number_, (part, note) in enumerate(notes.items())
        }
        if labels is not None:
            for part in parts:
                parts[part] |= {"labels": labels.counts.get(part, {}), "pairs": labels.pairs, "numbers": labels.numbers}
        writer.finish(parts)
    finally:
        writer.close()


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, by characters; elsewhere nothing."""
    if total < 8 << 20 or sys.stderr is None or not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda size: progress.advance(task, size)
