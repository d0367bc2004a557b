"""Text for experiments: Python's standard library, which is on every machine.

Its files are taken in alphabetical order, every tenth for validation. Another version of Python has another text, so
the machine line of a result names the version.
"""

from functools import lru_cache
from typing import NamedTuple

from clearhead.data.files import find
from clearhead.data.windows import NextTokens
from clearhead.tokenizer import Characters, Tokenizer
from clearhead.tokenizer import train as learn


class Language(NamedTuple):
    """Windows of text for a decoder-only model, and how many bytes a token of the validation text stands for."""

    train: NextTokens
    validation: NextTokens
    bytes_per_token: float

    @property
    def tokenizer(self) -> Tokenizer:
        return self.train.tokenizer


@lru_cache(maxsize=2)
def library(characters: int) -> tuple[str, str]:
    """The first so many characters of the standard library for training, and a ninth as many for validation."""
    parts: tuple[list[str], list[str]] = ([], [])
    room = [characters, characters // 9]
    for number, path in enumerate(find("$STDLIB/*.py")):
        part = int(number % 10 == 9)
        if room[part] > 0:
            # characters outside ASCII are rare here, and would each cost a character model a token
            text = path.read_text(encoding="utf-8", errors="replace").encode("ascii", "replace").decode()
            parts[part].append(text[: room[part]])
            room[part] -= len(parts[part][-1])
    return "".join(parts[0]), "".join(parts[1])


@lru_cache(maxsize=8)
def language(characters: int, context: int, vocab_size: int | None = None) -> Language:
    """The standard library as a language: of characters, or of byte-pair tokens if a vocabulary size is given."""
    train, validation = library(characters)
    tokenizer: Tokenizer
    if vocab_size is None:
        tokenizer = Characters.train([train])
    else:
        tokenizer = learn([train], vocab_size)

    def windows(text: str, shifted: bool) -> NextTokens:
        return NextTokens.of([text], False, tokenizer, context, shifted, "the standard library")

    held_out = windows(validation, False)
    return Language(windows(train, True), held_out, len(validation) / len(tokenizer.encode_ordinary(validation)))
