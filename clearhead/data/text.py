"""Plain text for language models: files into documents, and documents into pieces that fit into memory.

What a document is, the recipe says: the whole text is one stream (as nanoGPT treats Shakespeare), or every file, every
line, or every block between blank lines is a document of its own, about which its neighbours say nothing. A file with
columns (TSV, CSV, JSON lines) has a document in each row.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from clearhead.data.batch import Tally
from clearhead.data.files import (
    LOOKED_AT,
    decode,
    decoded,
    line_blocks,
    not_utf8,
    raw_lines,
    refuse_json_lines,
    some_lines,
    text_blocks,
)
from clearhead.data.parallel import hold_out
from clearhead.data.seen import Seen
from clearhead.data.settings import DataSettings
from clearhead.data.tables import Wanted, read_table
from clearhead.errors import InputError
from clearhead.tokenizer.corpus import parts

Document = Iterable[str]  # its pieces, which end where words do


class Piece(NamedTuple):
    """Part of a document, and whether the document begins and ends with it."""

    text: str
    first: bool
    last: bool


def read_text(
    groups: Sequence[Sequence[Path]], settings: DataSettings, share: float | None, part: str, tally: Tally
) -> Iterator[tuple[str, int, Piece]]:
    """The pieces of all documents, each with its part and its corpus. What is not UTF-8 is left out and counted;
    refused in validation and test, if there is much of it, or where a hole would be unseen: in a stream or a block."""
    name = text_name(groups)
    if settings.documents == "none":
        streams = groups if settings.weights else [[path for paths in groups for path in paths]]
        for number, paths in enumerate(streams):
            for kind, document in cut_stream(paths, settings, share, part, name, tally):
                yield from ((kind, number, piece) for piece in marked(document))
        return
    seen = Seen() if settings.deduplicate and part == "train" else None
    found = (
        (number, document)
        for number, paths in enumerate(groups)
        for document in read_documents(paths, settings, part != "train", tally, seen)
    )
    none = True
    for kind, (number, document) in hold_out(found, share, part):
        for piece in marked(document):
            none = none and not piece.text.strip()
            yield kind, number, piece
    if none:
        broken = sum(one.count for one in tally.skipped() if one.reason == "not UTF-8")
        raise InputError(f"{name}: no text in it" + (f"; {broken:,} of its parts are not UTF-8" if broken else ""))


def text_name(groups: Sequence[Sequence[Path]]) -> str:
    """Files, for messages."""
    paths = [path for paths in groups for path in paths]
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more"


def marked(document: Document) -> Iterator[Piece]:
    before: str | None = None
    first = True
    for text in document:
        if before is not None:
            yield Piece(before, first, False)
            first = False
        before = text
    if before is not None:
        yield Piece(before, first, True)


# ---- one stream ----------------------------------------------------------------------------------------------------


def cut_stream(
    paths: Sequence[Path], settings: DataSettings, share: float | None, part: str, name: str, tally: Tally
) -> Iterator[tuple[str, Document]]:
    """All files one after the other, of which the last part may be for validation."""
    length, blank = 0, True
    for piece in stream_pieces(paths, settings, Tally()):
        length, blank = length + len(piece), blank and not piece.strip()
    if blank:
        raise InputError(f"{name}: no text in it")
    rest = Cutter(stream_pieces(paths, settings, tally))
    if share is None:
        yield part, rest.take(math.inf)
        return
    end = int(length * (1 - share))
    if min(end, length - end) < 2:
        raise InputError(f"{name}: {length} characters are too few to train on and to validate with")
    yield "train", rest.take(end)
    yield "validation", rest.take(math.inf)


def stream_pieces(paths: Sequence[Path], settings: DataSettings, tally: Tally) -> Iterator[str]:
    for path in nonempty(paths, tally):
        if settings.text_column is not None:
            yield from (text + "\n" for text in table_texts(path, settings, True, tally))
        else:
            refuse_objects(path)
            yield from text_blocks(path)


class Cutter:
    """Takes so many characters at a time off a row of pieces."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self.pieces, self.rest = pieces, ""

    def take(self, count: float) -> Iterator[str]:
        while count > 0 and (piece := self.rest or next(self.pieces, "")):
            kept = piece if len(piece) <= count else piece[: int(count)]
            self.rest = piece[len(kept) :]
            count -= len(kept)
            yield kept


# ---- documents -----------------------------------------------------------------------------------------------------


def read_documents(
    paths: Sequence[Path], settings: DataSettings, strict: bool, tally: Tally, seen: Seen | None
) -> Iterator[Document]:
    for path in nonempty(paths, tally):
        if settings.documents == "file" and settings.text_column is None:
            refuse_objects(path)
            if not strict and not is_utf8(path):
                tally.note("not UTF-8", str(path))
            elif seen is None or not seen.file(path):
                yield text_blocks(path)
            else:
                tally.note("there before", str(path))
            continue
        if settings.text_column is not None:
            texts = table_texts(path, settings, strict, tally)
        elif settings.documents == "line":
            texts = line_texts(path, strict, tally)
        else:
            texts = block_texts(path)
        for text in texts:
            if seen is not None and seen(text):
                tally.note("there before", f"{path}: {text[:40]}")
            else:
                yield parts(text)


def line_texts(path: Path, strict: bool, tally: Tally) -> Iterator[str]:
    for number, line in enumerate(some_lines(path, strict), 1):
        if line is None:
            tally.note("not UTF-8", f"{path}, line {number}")
        elif line.strip():
            yield line


def block_texts(path: Path) -> Iterator[str]:
    """What stands between blank lines."""
    refuse_objects(path)
    lines: list[str] = []
    number = 0
    for block in line_blocks(path):
        for line in decoded(block):
            number += 1
            if line is None:
                raise not_utf8(path, number, next(raw for raw in block.split(b"\n") if decode(raw) is None))
            if line and not line.isspace():
                lines.append(line)
            elif lines:
                yield "\n".join(lines).strip("\r\n")
                lines = []
    if lines:
        yield "\n".join(lines).strip("\r\n")


def table_texts(path: Path, settings: DataSettings, strict: bool, tally: Tally) -> Iterator[str]:
    """The column of a file that holds text."""
    wanted = Wanted(("text_column",), (settings.text_column,), ("text",))
    for line, cells in read_table(path, wanted, strict):
        text = cells[0] if cells else None
        if text is None or not text.strip():
            if cells != []:
                tally.note("not UTF-8" if text is None else "without a text", f"{path}, line {line}")
        else:
            yield text


def nonempty(paths: Sequence[Path], tally: Tally) -> Iterator[Path]:
    for path in paths:
        if len(paths) > 1 and path.stat().st_size == 0:
            tally.note("empty file", str(path))
        else:
            yield path


def refuse_objects(path: Path) -> None:
    """JSON lines are no plain text."""
    refuse_json_lines(path, (decode(line) for line in islice(raw_lines(path), LOOKED_AT)))


def is_utf8(path: Path) -> bool:
    try:
        for _ in text_blocks(path):
            pass
    except InputError as error:
        if "not UTF-8" not in str(error):
            raise
        return False
    return True
