"""Plain text for language models: files into documents.

What a document is, the recipe says: the whole text is one stream (as nanoGPT treats Shakespeare), or every file, every
line, or every block between blank lines is a document of its own, about which its neighbours say nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.batch import Skipped
from clearhead.data.files import decode, find, read, read_lines, refuse_encoding, refuse_json_lines, split_lines
from clearhead.data.parallel import hold_out
from clearhead.data.settings import DataSettings, Files
from clearhead.errors import InputError


@dataclass(frozen=True)
class Text:
    """Documents in order. If `apart`, each gets a beginning and an end, and none sees another."""

    documents: list[str]
    apart: bool
    files: str  # a name for messages
    skipped: list[Skipped]


def read_text(files: Files, documents: str, strict: bool) -> Text:
    """The documents of some files. What is not UTF-8 is left out and counted; refused if `strict`, if there is much of
    it, or where a hole would stay unseen: inside a stream or a block."""
    paths = find(files)
    name = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1:,} more"
    found: list[str] = []
    broken: list[str] = []
    empty: list[str] = []
    for path in paths:
        if len(paths) > 1 and path.stat().st_size == 0:
            empty.append(str(path))
        elif documents == "line":
            lines = read_lines(path, strict)
            broken += [f"{path}, line {number}" for number, line in enumerate(lines, 1) if line is None]
            found += [line for line in lines if line and line.strip()]
        elif (content := decode_file(path, strict or documents != "file")) is None:
            broken.append(str(path))
        elif documents == "blank-line":
            found += [block.strip("\r\n") for block in re.split(r"\n[^\S\n]*(?=\n)", content) if block.strip()]
        else:
            found.append(content)
    if documents == "none":
        found = ["".join(found)]
    if not any(document.strip() for document in found):
        raise InputError(f"{name}: no text in it" + (f"; {len(broken):,} of its parts are not UTF-8" if broken else ""))
    skipped = [
        Skipped(len(left_out), reason, left_out[0])
        for reason, left_out in (("not UTF-8", broken), ("empty file", empty))
        if left_out
    ]
    return Text(found, documents != "none", name, skipped)


def decode_file(path: Path, strict: bool) -> str | None:
    """The text of a file; if it is not UTF-8, None, or if `strict`, refused with the line."""
    content = read(path)
    text = decode(content)
    if text is None and strict:
        raw = split_lines(content)
        refuse_encoding(path, raw, [decode(line) for line in raw])
    if text is not None:
        refuse_json_lines(path, (line[0] for line in re.finditer(r"[^\n]+", text)))
    return text


def split_text(text: Text, share: float) -> tuple[Text, Text]:
    """Training and validation where no file is named for the latter: the last part of a stream, or every so-manieth
    document."""
    if not text.apart:
        stream = text.documents[0]
        end = int(len(stream) * (1 - share))
        parts = [stream[:end]], [stream[end:]]
        if min(len(part[0]) for part in parts) < 2:
            raise InputError(f"{text.files}: {len(stream)} characters are too few to train on and to validate with")
    else:
        train, validation = hold_out(len(text.documents), share)
        parts = [text.documents[i] for i in train], [text.documents[i] for i in validation]
    return (
        Text(parts[0], text.apart, text.files, text.skipped),
        Text(parts[1], text.apart, text.files, []),
    )


def read_parts(settings: DataSettings) -> tuple[Text, Text, Text | None]:
    """Training, validation and test text, as far as the settings name them."""
    assert settings.text is not None
    train = read_text(settings.text, settings.documents, strict=False)
    test = settings.test_text and read_text(settings.test_text, settings.documents, strict=True)
    if settings.validation_text is None:
        train, validation = split_text(train, settings.validation_share)
    else:
        validation = read_text(settings.validation_text, settings.documents, strict=True)
    return train, validation, test or None
