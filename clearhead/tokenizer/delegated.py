"""Tokenizers that are no byte-pair encoding of ours, handed to Hugging Face's `tokenizers` behind the same interface.

WordPiece, SentencePiece's unigram model, normalisers, prefix spaces: models that others trained expect them to the
letter, and `tokenizers` is the reference. It is an extra (`pip install 'clearhead[tokenizers]'`), needed only where a
run has such a tokenizer.
"""

import json
import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

from clearhead.errors import InputError
from clearhead.tokenizer.base import EOS, PAD, UNK, StreamDecoder, Tokenizer
from clearhead.tokenizer.characters_and_integers import refuse_dropout
from clearhead.tokenizer.huggingface import unprintable

LANGUAGE = re.compile(r">>[^<>\s]+<<")
BYTE = re.compile("<0x[0-9A-F]{2}>")
INSTALL = "pip install 'clearhead[tokenizers]'"


class Delegated(Tokenizer):
    """A `tokenizer.json` of `tokenizers`. `vocabulary`: the ids of its pieces, where a model counts otherwise than its
    tokenizer does (Marian's pieces and their numbers are two files); what is not in it is unknown."""

    def __init__(self, content: dict[str, Any], where: str, vocabulary: dict[str, int] | None = None) -> None:
        self.content, self.vocabulary = content, vocabulary
        self._inner = open_json(content, where)
        if content["model"].get("dropout"):
            raise InputError(
                f"{where}: model.dropout = {content['model']['dropout']!r} would give other ids every time"
            )
        self.ids: dict[str, int] = vocabulary or self._inner.get_vocab(with_added_tokens=True)
        if not self.ids:
            raise InputError(f"{where}: its vocabulary is empty")
        added = content.get("added_tokens") or []
        self.special = {t["content"]: self.ids[t["content"]] for t in added if t.get("special")}
        if vocabulary is not None:
            self.special = {name: self.ids[name] for name in (PAD, EOS, UNK) if name in vocabulary}
        self._names = {number: name for name, number in self.ids.items()}
        self.size = max(self._names) + 1
        self._byte_level = "ByteLevel" in json.dumps(content.get("decoder") or {})

    @property
    def kind(self) -> str:
        return f"{self.content['model'].get('type', 'a model')}, by Hugging Face's tokenizers"

    def unused(self) -> list[int]:
        return [number for number in range(self.size) if number not in self._names]

    def encode_ordinary(self, text: str, *, dropout: float = 0.0, generator: random.Random | None = None) -> list[int]:
        refuse_dropout(dropout)
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate is no character over there
        if self.vocabulary is None:
            found: list[int] = self._inner.encode(text, add_special_tokens=False).ids
            return found
        code = LANGUAGE.match(text)  # how a model of several languages is told which to write
        rest = text if code is None else text[code.end() :]
        pieces = [*([] if code is None else [code[0]]), *self._inner.encode(rest).tokens]
        unknown = self.unk_id
        if unknown is None and (strange := next((piece for piece in pieces if piece not in self.ids), None)):
            raise InputError(f"{strange!r} has no id, and there is no token for the unknown")
        return [self.ids.get(piece, unknown or 0) for piece in pieces]

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token as far as it has some of its own: what joins it to its neighbours is their decoder's
        affair."""
        name = self._name(token)
        if name in self.special:
            return name.encode()
        if self._byte_level:
            return unprintable(name, "tokenizer.json")
        if BYTE.fullmatch(name):
            return bytes([int(name[3:5], 16)])
        return name.replace("▁", " ").removeprefix("##").encode(errors="surrogatepass")

    def is_byte(self, token: int) -> bool:
        """Whether a token is a byte of a character: the bytes that stand together are read together."""
        return not self._byte_level and BYTE.fullmatch(self._name(token)) is not None

    def _name(self, token: int) -> str:
        if token not in self._names:
            raise InputError(f"no token has the id {token}; the vocabulary has {self.size} ids from 0")
        return self._names[token]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        ids = list(ids)
        names = [self._name(number) for number in ids]
        if self.vocabulary is not None:
            return "".join(names).replace("▁", " ").removeprefix(" ").encode()
        text: str = self._inner.decode(ids, skip_special_tokens=False)
        return text.encode()

    def decode_after(self, before: Sequence[int], ids: Sequence[int]) -> str:
        said, whole = self.decode(before), self.decode([*before, *ids])
        return whole.removeprefix(said) if whole.startswith(said) else self.decode(ids)

    def decoder(self, before: Sequence[int] = ()) -> StreamDecoder:
        return _Growing(self, before)

    def to_json(self) -> str:
        content = {"clearhead": "tokenizers", "vocabulary": self.vocabulary, "tokenizer": self.content}
        return json.dumps(content, ensure_ascii=False) + "\n"


class _Growing(StreamDecoder):
    """Ids into text as they arrive, where a token is written otherwise after another one: what the last few tokens
    say together, less what they had said before the newest came."""

    def __init__(self, tokenizer: Delegated, before: Sequence[int]) -> None:
        super().__init__(tokenizer)
        self._tokenizer: Delegated = tokenizer
        self._ids = list(before)
        self._from, self._said = 0, len(before)  # where the text at hand begins, and how much of it has been given out

    def push(self, token: int) -> str:
        self._ids.append(token)
        return self._new(final=False)

    def finish(self) -> str:
        return self._new(final=True)

    def _new(self, final: bool) -> str:
        before = self._tokenizer.decode(self._ids[self._from : self._said])
        now = self._tokenizer.decode(self._ids[self._from :])
        unfinished = now.endswith("\ufffd") or self._tokenizer.is_byte(self._ids[-1]) if self._ids else True
        if len(now) <= len(before) or (unfinished and not final):
            return ""
        self._from, self._said = self._said, len(self._ids)
        return now[len(before) :]


def open_json(content: dict[str, Any], where: str) -> Any:
    """Their tokenizer object, reading the names of special tokens in a text as the plain text they are."""
    try:
        import tokenizers
    except ImportError:
        raise InputError(f"{where} needs Hugging Face's tokenizers: {INSTALL}") from None
    try:
        opened = tokenizers.Tokenizer.from_str(json.dumps({**content, "truncation": None, "padding": None}))
    except BaseException as error:  # a panic in Rust is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise InputError(f"{where} is not a tokenizer that tokenizers can read: {error}") from None
    opened.encode_special_tokens = True
    return opened


def from_json(content: dict[str, Any], where: str) -> Delegated:
    """The tokenizer that `to_json` described; `where` names the file in messages."""
    inner, vocabulary = content.get("tokenizer"), content.get("vocabulary")
    if not isinstance(inner, dict) or not isinstance(inner.get("model"), dict):
        raise InputError(f"{where}: 'tokenizer' is {inner!r:.80}, and a tokenizer.json of tokenizers is wanted")
    if vocabulary is not None:
        check_vocabulary(vocabulary, where)
    return Delegated(inner, where, vocabulary)


def check_vocabulary(vocabulary: Any, where: str) -> None:
    """Refuse what is not names with an id each."""
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise InputError(f"{where}: a table of tokens and their ids is wanted, not {vocabulary!r:.80}")
    for name, number in vocabulary.items():
        if type(number) is not int or not 0 <= number < 1 << 24:
            raise InputError(f"{where}: the id of {name!r} is {number!r:.80}, and a whole number is wanted")
    if len(set(vocabulary.values())) < len(vocabulary):
        raise InputError(f"{where}: two tokens have the same id")
