"""What every tokenizer here can do, whether its tokens are merged bytes, characters, integers or somebody else's.

Special tokens (`<pad>`, `</s>`…) steer a model, so text from outside must not be able to forge them: `encode` refuses
them by name unless the caller allows them, and `encode_ordinary` reads them as the plain characters they are.
"""

import codecs
import json
import os
import random
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from clearhead.disk import write_whole
from clearhead.errors import InputError

PAD, BOS, EOS, UNK, MASK = "<pad>", "<s>", "</s>", "<unk>", "<mask>"
ROLES = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK, "mask": MASK}  # what each is called unless `marks` says more
SPECIAL = (PAD, BOS, EOS, UNK)  # what is reserved unless the caller chooses otherwise
ALL: Literal["all"] = "all"
LOWER = "lowercase"  # character by character, as others do it: a Σ at the end of a word is no exception
FORMS = ("NFC", "NFKC", LOWER)

Allowed = Collection[str] | Literal["all"]


class Tokenizer(ABC):
    """Text to ids and back. `size` is the number of rows an embedding needs: the largest id plus one.

    `marks` are the ids that do the work of `<pad>`, `<s>`… (the keys of ROLES) in a model that others trained, where
    they have other names. `around` is what such a model expects before and after a whole text; None: as the run says.
    """

    size: int
    special: dict[str, int]
    separator = b""  # what stands between the bytes of two tokens
    marks: dict[str, int] = {}  # noqa: RUF012 (replaced, never changed)
    around: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    forms: tuple[str, ...] = ()  # what is done with a text before anything else, of FORMS in this order

    @property
    def kind(self) -> str:
        """What it is, for people."""
        return type(self).__name__

    @abstractmethod
    def encode_ordinary(self, text: str, *, dropout: float = 0.0, generator: random.Random | None = None) -> list[int]:
        """The ids of a text in which special tokens are nothing special."""

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """The bytes that one id stands for."""

    @abstractmethod
    def to_json(self) -> str:
        """The whole tokenizer as the text of a `tokenizer.json`."""

    def encode(
        self,
        text: str,
        allowed_special: Allowed = (),
        *,
        dropout: float = 0.0,
        generator: random.Random | None = None,
    ) -> list[int]:
        """The ids of a text. Special tokens in it must be in `allowed_special` ("all" for any) or are refused."""
        if not self.special or not (found := self._special_pattern.search(text)):
            return self.encode_ordinary(text, dropout=dropout, generator=generator)
        allowed = self.special if allowed_special == ALL else allowed_special
        ids, position = [], 0
        while found:
            name = found[0]
            if name not in allowed:
                raise InputError(
                    f"the text holds the special token {name!r} at character {found.start()}; "
                    f"allow it with allowed_special={{{name!r}}}, or use encode_ordinary to read it as plain text"
                )
            ids += self.encode_ordinary(text[position : found.start()], dropout=dropout, generator=generator)
            ids.append(self.special[name])
            position = found.end()
            found = self._special_pattern.search(text, position)
        return ids + self.encode_ordinary(text[position:], dropout=dropout, generator=generator)

    def encode_batch(self, texts: Iterable[str], allowed_special: Allowed = ()) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text, allowed_special) for text in texts]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that the ids stand for; special tokens stand for their names."""
        return self.separator.join(map(self.token_bytes, ids))

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """The text of the ids. Bytes that are no UTF-8 become U+FFFD, or what else `errors` asks of bytes.decode."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_after(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """The text of ids that go on from others; where a text begins otherwise than it goes on, that is not
        `decode`."""
        return (self.separator.decode() if before and ids else "") + self.decode(ids)

    def decoder(self, before: Sequence[int] = ()) -> "StreamDecoder":
        """A decoder for ids that arrive one at a time, after those there are already."""
        return StreamDecoder(self, bool(before))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `tokenizer.json`, whole or not at all; into a folder under that name, or as the file named."""
        target = Path(path)
        written = self.to_json()
        if self.marks or self.around is not None or self.forms:
            around = None if self.around is None else [list(ids) for ids in self.around]
            marked = {"clearhead": "marked", "marks": self.marks, "around": around, "tokenizer": json.loads(written)}
            marked |= {"forms": self.forms} if self.forms else {}
            written = json.dumps(marked, ensure_ascii=False, indent=1) + "\n"
        write_whole(target / "tokenizer.json" if target.is_dir() else target, written)

    def formed(self, text: str) -> str:
        """The text as it is read: in a normal form of Unicode, or in small letters, if it was learned so."""
        for form in self.forms:
            text = text.replace("Σ", "σ").lower() if form == LOWER else unicodedata.normalize(form, text)
        return text

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        # longest first, so that of two special tokens where one begins the other the longer is found
        return re.compile("|".join(map(re.escape, sorted(self.special, key=len, reverse=True))))

    def unused(self) -> list[int]:
        """Ids below `size` that no token has."""
        return []

    def marked(self, role: str) -> int | None:
        """The id that plays this role: one of the keys of ROLES."""
        return self.marks[role] if role in self.marks else self.special.get(ROLES[role])

    @property
    def pad_id(self) -> int | None:
        return self.marked("pad")

    @property
    def bos_id(self) -> int | None:
        return self.marked("bos")

    @property
    def eos_id(self) -> int | None:
        found = self.marked("eos")
        return self.special.get("<|endoftext|>") if found is None else found

    @property
    def unk_id(self) -> int | None:
        return self.marked("unk")

    @property
    def mask_id(self) -> int | None:
        return self.marked("mask")


class StreamDecoder:
    """Turns ids into text as they arrive. A character whose bytes are not all there yet waits for the rest."""

    def __init__(self, tokenizer: Tokenizer, started: bool = False) -> None:
        self._tokenizer = tokenizer
        self._started = started
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this id completes; empty while a character is unfinished."""
        separator = self._tokenizer.separator if self._started else b""
        self._started = True
        return self._utf8.decode(separator + self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that never became whole, otherwise nothing."""
        return self._utf8.decode(b"", final=True)


def check_special(special: Sequence[str]) -> None:
    """Refuse special tokens that could not be told apart or could never be found."""
    seen: set[str] = set()
    for name in special:
        if not name:
            raise InputError("a special token is empty; it needs at least one character")
        if name in seen:
            raise InputError(f"the special token {name!r} is given twice")
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise InputError(f"the special token {name!r} has a lone surrogate, which is half a character")
        seen.add(name)


def check_dropout(dropout: float, generator: random.Random | None) -> random.Random:
    """Dropout is a probability, and chance must come from a generator that the caller seeded."""
    if not 0.0 <= dropout <= 1.0:
        raise InputError(f"dropout is {dropout}; it is a probability, from 0 to 1")
    if generator is None:
        raise InputError("dropout needs generator=random.Random(seed), so that the run can be repeated")
    return generator
