"""Tokenizers without merges, for tasks that need none: one token a character, or one token an integer.

They share the interface of byte-pair encoding, so that a sorting task or a character model trains, decodes and is
saved exactly as a language model is.
"""

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

from clearhead.errors import InputError
from clearhead.tokenizer.base import SPECIAL, UNK, Tokenizer, check_special

LARGEST = 1 << 31  # integers


class Characters(Tokenizer):
    """Each character is a token; the special tokens come first, then the characters in the order given."""

    def __init__(self, characters: Sequence[str], special: Sequence[str] = SPECIAL) -> None:
        check_special(special)
        for character in characters:
            if len(character) != 1:
                raise InputError(f"{character!r} has {len(character)} characters; a token of this tokenizer is one")
            if "\ud800" <= character <= "\udfff":
                raise InputError(f"{character!r} is a lone surrogate, which is half a character")
        self.characters = list(characters)
        self.special = {name: number for number, name in enumerate(special)}
        self._ids = {character: number for number, character in enumerate(self.characters, len(special))}
        if len(self._ids) < len(self.characters):
            raise InputError("a character is given twice")
        self._bytes = [token.encode() for token in [*special, *self.characters]]
        self.size = len(self._bytes)

    @classmethod
    def train(cls, texts: Iterable[str], special: Sequence[str] = SPECIAL) -> "Characters":
        """Every character of the texts, in the order of Unicode."""
        found: set[str] = set()
        for text in texts:
            found.update(text)
        return cls(sorted(found), special)

    def encode_ordinary(self, text: str, *, dropout: float = 0.0, generator: random.Random | None = None) -> list[int]:
        """The ids of the characters; one that is not in the vocabulary is `<unk>`, or refused where that is absent."""
        refuse_dropout(dropout)
        if self.forms:
            text = self.formed(text)
        try:
            return [self._ids[character] for character in text]
        except KeyError as error:
            if self.unk_id is None:
                raise InputError(f"the character {error} is not in the vocabulary, and there is no {UNK}") from None
            return [self._ids.get(character, self.unk_id) for character in text]

    def token_bytes(self, token: int) -> bytes:
        return look_up(self._bytes, token)

    def to_json(self) -> str:
        content = {"clearhead": "characters", "special": list(self.special), "characters": self.characters}
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


class Integers(Tokenizer):
    """The integers from 0 to count − 1, written in decimal with spaces between; the special tokens come first."""

    separator = b" "

    def __init__(self, count: int, special: Sequence[str] = SPECIAL) -> None:
        check_special(special)
        if count < 1:
            raise InputError(f"the count of integers is {count}; at least 1 is wanted")
        self.count = count
        self.special = {name: number for number, name in enumerate(special)}
        self._names = [name.encode() for name in special]
        self.size = len(special) + count

    def encode_ordinary(self, text: str, *, dropout: float = 0.0, generator: random.Random | None = None) -> list[int]:
        refuse_dropout(dropout)
        longest = len(str(self.count - 1))
        ids = []
        for word in text.split():
            # without leading zeros and no longer than the largest: int() refuses words of thousands of digits
            digits = word.lstrip("0") or "0" if word.isascii() and word.isdigit() else ""
            if not digits or len(digits) > longest or int(digits) >= self.count:
                shown = word if len(word) <= 40 else f"{word[:40]}…"
                raise InputError(f"{shown!r} is not an integer from 0 to {self.count - 1}")
            ids.append(len(self.special) + int(digits))
        return ids

    def token_bytes(self, token: int) -> bytes:
        if 0 <= token < len(self._names):
            return self._names[token]
        if token not in range(self.size):
            raise InputError(f"no token has the id {token}; the vocabulary has {self.size} ids from 0")
        return str(token - len(self._names)).encode()

    def to_json(self) -> str:
        return json.dumps({"clearhead": "integers", "special": list(self.special), "count": self.count}) + "\n"


def from_json(content: dict[str, Any], where: str) -> Characters | Integers:
    """The tokenizer that `to_json` described; `where` names the file in messages."""
    try:
        if content["clearhead"] == "characters":
            return Characters(_strings(content, "characters"), _strings(content, "special"))
        if content["clearhead"] == "integers":
            if type(content["count"]) is not int or content["count"] > LARGEST:
                raise InputError(f"'count' is {content['count']!r}, and a whole number up to {LARGEST:,} is wanted")
            special = _strings(content, "special")
            if unknown := [name for name in special if name not in SPECIAL]:
                raise InputError(f"'special' has {unknown[0]!r}; of integers there are {', '.join(SPECIAL)}")
            return Integers(content["count"], special)
    except KeyError as error:
        raise InputError(f"{where}: the key {error} is missing") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    raise InputError(f"{where}: 'clearhead' is {content['clearhead']!r}; 'characters' and 'integers' are known")


def _strings(content: dict[str, Any], key: str) -> list[str]:
    found = content[key]
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise InputError(f"{key!r} is no list of strings")
    return found


def look_up(table: Sequence[bytes], token: int) -> bytes:
    if token not in range(len(table)):
        raise InputError(f"no token has the id {token}; the vocabulary has {len(table)} ids from 0")
    return table[token]


def refuse_dropout(dropout: float) -> None:
    if dropout:
        raise InputError(f"dropout is {dropout}, but dropout leaves out merges, and this tokenizer has none")
