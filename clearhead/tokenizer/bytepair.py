"""Byte-pair encoding over bytes: the tokenizer of GPT-2 and of most language models since.

Every string can be encoded, because the 256 bytes are tokens themselves (Radford et al., 2019, section 2.2). A text
is cut into words (`split.py`), each word becomes the tokens of its bytes, and the merges (`merge.py`) join them.
Text is mostly words seen before, so a dictionary remembers what each became, and encoding is mostly looking up.
"""

import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TypeVar

from clearhead.errors import InputError
from clearhead.tokenizer.base import Allowed, Tokenizer, check_dropout, check_special
from clearhead.tokenizer.many import PairTable, merge_many, pair_table
from clearhead.tokenizer.merge import (
    LONG,
    Merges,
    merge,
    merge_steps,
    merge_with_dropout,
    whole_symbols,
    words_after_a_merge,
)
from clearhead.tokenizer.split import Splitter

Merge = tuple[bytes, bytes]

MANY = 4096  # characters of a text, or bytes of unseen words, from which on words are merged many at a time
GROUP = 1 << 20  # characters of a batch that are worked on together

UTF32 = f"utf-32-{sys.byteorder[0]}e"

# The order in which GPT-2's vocabulary lists the bytes: first those that print as one Latin-1 character.
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
ALPHABET = bytes([*PRINTABLE, *(byte for byte in range(256) if byte not in PRINTABLE)])

_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udc7f\udd00-\udfff]")

Found = TypeVar("Found")


class WordCache(dict[str, Found]):
    """Word -> what is found for it, computed when first asked for, and kept if the word has fewer than `longest`
    characters. Threads may share it: the worst is work done twice."""

    LIMIT = 1 << 18  # words; when it is full it starts anew, which costs less than keeping track of use

    def __init__(self, compute: Callable[[str], Found], longest: int = LONG) -> None:
        self._compute = compute
        self._longest = longest

    def __missing__(self, word: str) -> Found:
        found = self._compute(word)
        if len(word) < self._longest:
            if len(self) >= self.LIMIT:
                self.clear()
            self[word] = found
        return found


class BytePair(Tokenizer):
    """A byte-pair encoding: a vocabulary of byte strings, the merges in order, special tokens, a pre-split pattern."""

    def __init__(
        self,
        vocabulary: dict[bytes, int],
        merges: Sequence[Merge],
        special: dict[str, int] | None = None,
        pattern: str = "gpt2",
        whole_words: bool = False,
    ) -> None:
        """`whole_words`: a word that is in the vocabulary is that token, even where the merges would not make it."""
        self.special = dict(special or {})
        check_special(list(self.special))
        self.vocabulary = dict(vocabulary)
        self.merges = list(merges)
        self.whole_words = whole_words
        self._split = Splitter(pattern)
        self._bytes = _bytes_by_id(vocabulary, self.special)  # first: the ids must be ids to be symbols
        self._alphabet = alphabet_symbols(vocabulary)
        self.size = max(self._bytes) + 1
        self._merges = _symbol_merges(vocabulary, self.merges)
        self.clear_cache()

    @property
    def pattern(self) -> str:
        """The pre-split pattern, as a regular expression."""
        return self._split.pattern

    def unused(self) -> list[int]:
        return [number for number in range(self.size) if number not in self._bytes]

    def clear_cache(self) -> None:
        """Forget all words seen, as a new tokenizer would."""
        self._words = WordCache(self._encode_word)
        self._following = WordCache(partial(words_after_a_merge, merges=self._merges), longest=32)

    def encode_ordinary(self, text: str, *, dropout: float = 0.0, generator: random.Random | None = None) -> list[int]:
        """The ids of a text in which special tokens are nothing special.

        U+DC80 to U+DCFF stand for the bytes 80 to FF, as in all of Python (`errors="surrogateescape"`); of other
        surrogates, pairs become the character they mean and single ones U+FFFD, as tiktoken does.
        """
        if self.forms:
            text = self.formed(text)
        if dropout:
            chance = check_dropout(dropout, generator)
            look_up = partial(self._encode_with_dropout, dropout=dropout, generator=chance)
            try:
                return _as_ids("".join(map(look_up, self._split(text))))
            except UnicodeEncodeError:
                return _as_ids("".join(map(look_up, self._split(_without_surrogates(text)))))
        words = self._split(text)
        if len(text) >= MANY:
            self._merge_unseen(words)
        try:
            return _as_ids("".join(map(self._words.__getitem__, words)))
        except UnicodeEncodeError:
            return _as_ids("".join(map(self._words.__getitem__, self._split(_without_surrogates(text)))))

    def encode_batch(self, texts: Iterable[str], allowed_special: Allowed = ()) -> list[list[int]]:
        """The ids of each text, as `encode` gives them; words never seen are merged for many texts at once."""
        ids: list[list[int]] = []
        for group in _groups(texts):
            if self.special and any(map(self._special_pattern.search, group)):
                ids += [self.encode(text, allowed_special) for text in group]
            else:
                ids += self._encode_group(group)
        return ids

    def _encode_group(self, texts: list[str]) -> list[list[int]]:
        cut = list(map(self._split, map(self.formed, texts) if self.forms else texts))
        self._merge_unseen(chain.from_iterable(cut))
        look_up, ids = self._words.__getitem__, []
        for text, words in zip(texts, cut, strict=True):
            try:
                ids.append(_as_ids("".join(map(look_up, words))))
            except UnicodeEncodeError:
                ids.append(self.encode_ordinary(text))
        return ids

    def _merge_unseen(self, words: Iterable[str]) -> None:
        """Fill the cache with the words that it lacks, if there are enough of them to be merged at once."""
        distinct = set(words)
        unseen = distinct.difference(self._words)
        if len(self._words) + len(unseen) > self._words.LIMIT:
            self._words.clear()
            unseen = distinct
        waiting: list[str] = []
        spelled: list[bytes] = []
        for word in unseen:
            try:
                data = word.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                continue  # whoever asks for this word is told
            if len(word) < LONG and data not in self._whole:
                waiting.append(word)
                spelled.append(data)
        if sum(map(len, spelled)) >= MANY:
            self._words.update(zip(waiting, merge_many(spelled, self._alphabet, self._pair_table), strict=True))

    def encode_bytes(self, data: bytes) -> list[int]:
        """The ids of any bytes, also of such as are no UTF-8; `decode_bytes` gives them back."""
        return self.encode_ordinary(data.decode("utf-8", "surrogateescape"))

    def encode_word(self, data: bytes) -> list[int]:
        """The ids that the merges make of bytes taken as one word, without cutting them first."""
        return list(map(ord, merge("".join(map(self._alphabet.__getitem__, data)), self._merges)))

    def encode_with_offsets(self, text: str) -> list[tuple[int, int, int]]:
        """For each token its id and the span of characters, start and end, that it covers, wholly or in part; of a
        tokenizer with `forms`, spans of the formed text."""
        spans, start = [], 0
        for word in self._split(self.formed(text)):
            try:
                widths = [len(character.encode("utf-8", "surrogateescape")) for character in word]
            except UnicodeEncodeError:
                raise InputError(f"the text has a lone surrogate near character {start}: {word!r}") from None
            owners = [start + place for place, width in enumerate(widths) for _ in range(width)]
            byte = 0
            for symbol in self._words[word]:
                end = byte + len(self._bytes[ord(symbol)])
                spans.append((ord(symbol), owners[byte], owners[end - 1] + 1))
                byte = end
            start += len(word)
        return spans

    def token_bytes(self, token: int) -> bytes:
        try:
            return self._bytes[token]
        except KeyError:
            raise InputError(f"no token has the id {token}; the vocabulary has {self.size} ids from 0") from None

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        try:
            return b"".join(map(self._bytes.__getitem__, ids))
        except KeyError as error:
            raise InputError(f"no token has the id {error}; the vocabulary has {self.size} ids from 0") from None

    def to_json(self) -> str:
        from clearhead.tokenizer.huggingface import to_json  # which is built on this file

        return to_json(self)

    def explain(self, word: str) -> tuple[list[bytes], list[tuple[int, int, list[bytes]]]]:
        """The bytes of a word, and every merge as it happens: its rank, its place, and the pieces after it."""
        symbols = self._as_symbols(word)
        steps = merge_steps(symbols, self._merges)
        return self._pieces(symbols), [(rank, place, self._pieces(after)) for rank, place, after in steps]

    def split(self, text: str) -> list[str]:
        """The words that a text is cut into before any merging."""
        return self._split(text)

    def _encode_word(self, word: str) -> str:
        data = word.encode("utf-8", "surrogateescape")
        return self._whole.get(data) or merge("".join(map(self._alphabet.__getitem__, data)), self._merges)

    @cached_property
    def _pair_table(self) -> PairTable:
        return pair_table(self._merges)

    @cached_property
    def _whole(self) -> dict[bytes, str]:
        """The words that are a token as they stand; found out when first needed, for decoding never is."""
        symbols = {token: chr(number) for token, number in self.vocabulary.items()}
        if self.whole_words:
            return symbols
        whole = whole_symbols(self._merges)
        return {token: symbol for token, symbol in symbols.items() if symbol in whole}

    def _encode_with_dropout(self, word: str, dropout: float, generator: random.Random) -> str:
        # A word of unusual length is cut first: dropout cuts at random anyway, and this keeps its cost linear.
        symbols = self._as_symbols(word)
        parts = [symbols[start : start + LONG] for start in range(0, len(symbols), LONG)]
        return "".join(merge_with_dropout(part, self._following.__getitem__, dropout, generator) for part in parts)

    def _as_symbols(self, word: str) -> str:
        return "".join(map(self._alphabet.__getitem__, word.encode("utf-8", "surrogateescape")))

    def _pieces(self, symbols: str) -> list[bytes]:
        return [self._bytes[ord(symbol)] for symbol in symbols]


def alphabet_symbols(vocabulary: dict[bytes, int]) -> str:
    """The symbols of the 256 bytes, in the order of the bytes, after the check that none is missing."""
    missing = [f"{byte:#04x}" for byte in range(256) if bytes([byte]) not in vocabulary]
    if missing:
        raise InputError(f"the vocabulary lacks {len(missing)} of the 256 bytes, the first is {missing[0]}")
    return "".join(chr(vocabulary[bytes([byte])]) for byte in range(256))


def _bytes_by_id(vocabulary: dict[bytes, int], special: dict[str, int]) -> dict[int, bytes]:
    """Id -> bytes, after the check that every id has one meaning."""
    by_id: dict[int, bytes] = {}
    for token, number in [*vocabulary.items(), *((name.encode(), number) for name, number in special.items())]:
        if type(number) is not int or not 0 <= number <= sys.maxunicode:
            raise InputError(f"the token {token!r} has the id {number}; ids go from 0 to {sys.maxunicode}")
        if number in by_id:
            raise InputError(f"the id {number} stands for two tokens, {by_id[number]!r} and {token!r}")
        by_id[number] = token
    return by_id


def _symbol_merges(vocabulary: dict[bytes, int], merges: Sequence[Merge]) -> Merges:
    """The merges over symbols, after the checks that each can happen and none is there twice."""
    if not merges and len(vocabulary) > 256:
        raise InputError(
            f"there are no merges, but the vocabulary has {len(vocabulary)} tokens and 256 is all the bytes"
        )
    pairs: list[str] = []
    made: list[str] = []
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        for token in (left, right, left + right):
            if token not in vocabulary:
                raise InputError(f"merge {rank} joins {left!r} and {right!r}, but {token!r} is not in the vocabulary")
        pair = chr(vocabulary[left]) + chr(vocabulary[right])
        if pair in ranks:
            raise InputError(f"merge {rank} joins {left!r} and {right!r}, and so does merge {ranks[pair]}")
        pairs.append(pair)
        made.append(chr(vocabulary[left + right]))
        ranks[pair] = rank
    return Merges(pairs, made, ranks)


def _as_ids(symbols: str) -> list[int]:
    """Every symbol is chr(id), so in UTF-32 the string is already the array of its ids."""
    return memoryview(symbols.encode(UTF32, "surrogatepass")).cast("I").tolist()


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in groups of about GROUP characters."""
    group: list[str] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _without_surrogates(text: str) -> str:
    """Pairs joined into the character they mean, others (but those that stand for bytes) replaced by U+FFFD."""

    def repair(found: re.Match[str]) -> str:
        return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    return _SURROGATES.sub(repair, text)
