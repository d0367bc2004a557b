"""SentencePiece's model files (`.spm`, `tokenizer.model`): a protocol buffer, of which a few fields say everything.

A byte-pair model becomes our `Pieces`; a unigram model (Kudo, 2018) becomes a `tokenizer.json` for `tokenizers`.
"""

import base64
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

from clearhead.errors import InputError
from clearhead.reading import read_whole
from clearhead.tokenizer import Tokenizer
from clearhead.tokenizer.delegated import Delegated
from clearhead.tokenizer.pieces import Pieces

LARGEST = 256 << 20  # bytes of a file
UNIGRAM, BPE = 1, 2  # trainer_spec.model_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # SentencePiece.type
Fields = dict[int, list[Any]]


def fields(content: bytes, where: str) -> Fields:
    """The fields of a message by their numbers: whole numbers, or bytes."""
    found: Fields = defaultdict(list)
    at = 0
    value: Any
    try:
        while at < len(content):
            key, at = varint(content, at)
            kind = key & 7
            if kind == 0:
                value, at = varint(content, at)
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
                value, at = content[at : at + size], at + size
            elif kind == 2:
                size, at = varint(content, at)
                if at + size > len(content):
                    raise IndexError
                value, at = content[at : at + size], at + size
            else:
                raise IndexError
            found[key >> 3].append(value)
    except IndexError:
        raise InputError(f"{where} is not a model of SentencePiece, or cut short: damaged at byte {at}") from None
    return found


def varint(content: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first; and where it ends."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise IndexError


def read(path: Path, vocabulary: dict[str, int] | None = None) -> Tokenizer:
    """The tokenizer of a model file; `vocabulary`: the ids of its pieces, where these are not their places in it."""
    where = str(path)
    model = fields(read_whole(path, LARGEST), where)
    trainer, normaliser = (fields(b"".join(model[number]), where) for number in (2, 3))
    entries = [piece(one, where) for one in model[1]]
    kind = (trainer[3] or [UNIGRAM])[0]
    if not entries or kind not in (UNIGRAM, BPE):
        raise InputError(f"{where}: {len(entries)} pieces of the type {kind}; a unigram or byte-pair model is wanted")
    if kind == BPE:
        if vocabulary is not None or any(bool(one) for one in normaliser[2]):
            raise InputError(f"{where}: a byte-pair model with a normaliser or numbers of its own cannot be read")
        return byte_pair(entries)
    return Delegated(unigram(entries, normaliser, where), where, vocabulary)


def piece(content: bytes, where: str) -> tuple[str, float, int]:
    """Text, score and type."""
    found = fields(content, where)
    try:
        return found[1][0].decode(), struct.unpack("<f", (found[2] or [bytes(4)])[0])[0], (found[3] or [NORMAL])[0]
    except (IndexError, UnicodeDecodeError, struct.error, AttributeError, TypeError):
        raise InputError(f"{where} is not a model of SentencePiece: a piece is damaged") from None


def byte_pair(entries: list[tuple[str, float, int]]) -> Pieces:
    special = [text for text, _, kind in entries if kind in (UNKNOWN, CONTROL)]
    return Pieces([text.replace("▁", " ").encode() for text, _, _ in entries], [one[1] for one in entries], special)


def unigram(entries: list[tuple[str, float, int]], normaliser: Fields, where: str) -> dict[str, Any]:
    """The same as a `tokenizer.json`."""
    unknown = [number for number, (_, _, kind) in enumerate(entries) if kind == UNKNOWN]
    if len(unknown) != 1:
        raise InputError(f"{where}: {len(unknown)} pieces for the unknown; one is wanted")
    steps: list[dict[str, Any]] = []
    if normaliser[2] and normaliser[2][0]:
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(normaliser[2][0]).decode()})
    if (normaliser[4] or [1])[0]:  # remove_extra_whitespaces
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    scheme = "always" if (normaliser[3] or [1])[0] else "never"  # add_dummy_prefix
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": text, "special": kind != USER_DEFINED, **flags}
            for number, (text, _, kind) in enumerate(entries)
            if kind in (UNKNOWN, CONTROL, USER_DEFINED)
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": metaspace,
        "post_processor": None,
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": unknown[0],
            "vocab": [[text, score] for text, score, _ in entries],
            "byte_fallback": any(kind == BYTE for _, _, kind in entries),
        },
    }
