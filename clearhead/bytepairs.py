"""Byte-pair encoding (Sennrich et al., 2016), whole, in one file: how a text becomes the numbers a Transformer reads.

Begin with the 256 bytes, so that every text can be written. Then, again and again, make one new token of the two
neighbours that occur together most often: frequent words become one token, rare ones stay in pieces. Written to be
read, and slow; `clearhead/tokenizer/` learns the same merges from gigabytes.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

Pair = tuple[int, int]
Word = tuple[int, ...]


def merge(ids: Sequence[int], pair: Pair, new: int) -> list[int]:
    """Every occurrence of the pair, from left to right, becomes the one token `new`."""
    merged = []
    i = 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new)
            i += 2  # go on behind the pair: no token is used twice
        else:
            merged.append(ids[i])
            i += 1
    return merged


def learn_merges(words: dict[Word, int], count: int) -> list[Pair]:
    """The first `count` merges (fewer if pairs run out) for words that occur so many times; merge n makes 256 + n.

    Each time the most frequent pair of neighbours within a word is merged; of equally frequent ones, the lowest.
    """
    pairs: list[Pair] = []
    for number in range(count):
        times: Counter[Pair] = Counter()
        for word, occurs in words.items():
            for pair in pairwise(word):
                times[pair] += occurs
        if not times:
            break
        best = min(times, key=lambda pair: (-times[pair], pair))
        pairs.append(best)
        merged: Counter[Word] = Counter()
        for word, occurs in words.items():
            merged[tuple(merge(word, best, 256 + number))] += occurs
        words = merged
    return pairs


def encode(text: str, merges: Sequence[Pair]) -> list[int]:
    """The tokens of a text: its bytes, then every merge in the order in which they were learned."""
    ids = list(text.encode())
    for number, pair in enumerate(merges):
        ids = merge(ids, pair, 256 + number)
    return ids


def decode(ids: Sequence[int], merges: Sequence[Pair]) -> str:
    """The text of some tokens; bytes that are no UTF-8 become �."""
    spelled = [bytes([byte]) for byte in range(256)]
    for left, right in merges:
        spelled.append(spelled[left] + spelled[right])
    return b"".join(spelled[token] for token in ids).decode(errors="replace")
