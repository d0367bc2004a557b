"""Byte-pair encoding as SentencePiece does it (Kudo and Richardson, 2018): pieces of characters with scores.

Where ours applies merges in the order in which they were learned, this joins the two neighbours whose join is the piece
with the highest score. A text begins with a space, so that its first word is like any other; a character that is no
piece is written as its bytes (`<0x0A>`). llama2.c's `tokenizer.bin` and Llama's `tokenizer.model` are of this kind.
"""

import heapq
import json
import math
import random
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clearhead.errors import InputError
from clearhead.reading import read_whole
from clearhead.tokenizer.base import StreamDecoder, Tokenizer
from clearhead.tokenizer.characters_and_integers import look_up, refuse_dropout

BYTE = re.compile(rb"<0x([0-9A-F]{2})>")
LARGEST = 64 << 20  # bytes of a file


class Pieces(Tokenizer):
    """Pieces with scores, by id; the names of `special` are pieces that no text is cut into."""

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float], special: Iterable[str]) -> None:
        self.pieces, self.scores = list(pieces), list(scores)
        if not self.pieces or len(self.pieces) != len(self.scores):
            raise InputError(f"there are {len(self.pieces)} pieces and {len(self.scores)} scores")
        self.special = {}
        for name in special:
            if name.encode() not in self.pieces:
                raise InputError(f"the special token {name!r} is not among the pieces")
            self.special[name] = self.pieces.index(name.encode())
        reserved = set(self.special.values())
        self._ids = {
            piece: number for number, piece in reversed(list(enumerate(self.pieces))) if number not in reserved
        }
        self._bytes = [bytes([int(found[1], 16)]) if (found := BYTE.fullmatch(p)) else p for p in self.pieces]
        self._fallback = {byte[0]: number for number, byte in enumerate(self._bytes) if BYTE.fullmatch(pieces[number])}
        self.size = len(self.pieces)

    @property
    def kind(self) -> str:
        return "pieces with scores, SentencePiece's byte-pair encoding"

    def encode_ordinary(self, text: str, *, dropout: float = 0.0, generator: random.Random | None = None) -> list[int]:
        refuse_dropout(dropout)
        return self._join(self._start(f" {text}")) if text else []

    def _start(self, text: str) -> list[int]:
        """Characters that are pieces, and the bytes of those that are not."""
        ids: list[int] = []
        for character in text:
            written = character.encode("utf-8", "replace")
            number = self._ids.get(written)
            if number is not None:
                ids.append(number)
            elif all(byte in self._fallback for byte in written):
                ids += [self._fallback[byte] for byte in written]
            elif self.unk_id is not None:
                ids.append(self.unk_id)
            else:
                raise InputError(f"the character {character!r} is no piece, nor are its bytes")
        return ids

    def _join(self, ids: list[int]) -> list[int]:
        """Join neighbours, the best piece first and of equals the leftmost, until no two make a piece."""
        before, after = list(range(-1, len(ids) - 1)), list(range(1, len(ids) + 1))
        queue: list[tuple[float, int, int, int, int]] = []

        def consider(left: int) -> None:
            right = after[left]
            if left >= 0 and right < len(ids):
                made = self._ids.get(self.pieces[ids[left]] + self.pieces[ids[right]])
                if made is not None:
                    heapq.heappush(queue, (-self.scores[made], left, ids[left], ids[right], made))

        for place in range(len(ids) - 1):
            consider(place)
        alive = [True] * len(ids)
        while queue:
            _, left, first, second, made = heapq.heappop(queue)
            right = after[left]
            if not alive[left] or right >= len(ids) or ids[left] != first or ids[right] != second:
                continue  # one of the two has been joined to something else meanwhile
            ids[left], alive[right] = made, False
            after[left] = after[right]
            if after[right] < len(ids):
                before[after[right]] = left
            if before[left] >= 0:
                consider(before[left])
            consider(left)
        return [number for number, kept in zip(ids, alive, strict=True) if kept]

    def token_bytes(self, token: int) -> bytes:
        return look_up(self._bytes, token)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Without the space that every text begins with."""
        return super().decode_bytes(ids).removeprefix(b" ")

    def decode_after(self, before: Sequence[int], ids: Sequence[int]) -> str:
        return self.decode(ids) if self._at_start(before) else super().decode_bytes(ids).decode("utf-8", "replace")

    def decoder(self, before: Sequence[int] = ()) -> StreamDecoder:
        return _WithoutFirstSpace(self) if self._at_start(before) else super().decoder()

    def _at_start(self, before: Sequence[int]) -> bool:
        return not set(before).difference(self.special.values())

    def to_json(self) -> str:
        entries = [[piece.decode("latin1"), score] for piece, score in zip(self.pieces, self.scores, strict=True)]
        return json.dumps({"clearhead": "pieces", "special": list(self.special), "pieces": entries}) + "\n"


class _WithoutFirstSpace(StreamDecoder):
    def push(self, token: int) -> str:
        first = not self._started
        text = super().push(token)
        return text.removeprefix(" ") if first else text


def from_json(content: dict[str, Any], where: str) -> Pieces:
    """The tokenizer that `to_json` described; `where` names the file in messages."""
    try:
        pieces = [piece.encode("latin1") for piece, _ in content["pieces"]]
        scores = [float(score) for _, score in content["pieces"]]
        return Pieces(pieces, scores, [str(name) for name in content["special"]])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: not a tokenizer of pieces: {error}") from None


def read_llama2c(path: str | Path, size: int) -> Pieces:
    """llama2.c's `tokenizer.bin`: the longest length, then a score, a length and the bytes of each of `size` pieces.
    The first three are the unknown, the beginning and the end."""
    content, at = read_whole(path, LARGEST), 4
    pieces: list[bytes] = []
    scores: list[float] = []
    while len(pieces) < size:
        if at + 8 > len(content):
            raise InputError(f"{path}: it ends after {len(pieces)} of {size} pieces: not the tokenizer of this model")
        score, length = struct.unpack_from("<fi", content, at)
        if not 0 <= length <= len(content) - at - 8 or not math.isfinite(score):
            raise InputError(f"{path}: not a tokenizer of llama2.c: piece {len(pieces)} has the length {length}")
        pieces.append(content[at + 8 : at + 8 + length])
        scores.append(score)
        at += 8 + length
    if at != len(content):
        raise InputError(f"{path}: {len(content) - at} bytes follow the {size} pieces of this model: not its tokenizer")
    names = [b"<unk>", b"<s>", b"</s>"]
    pieces[:3] = names[: len(pieces)]  # written with line ends around the last two
    return Pieces(pieces, scores, [name.decode() for name in names[: len(pieces)]])
