"""Learning merges: again and again make one token of the pair that occurs most (Sennrich et al., 2016, section 3.2).

As in `merge.py`, one token is one character and a word is a `str`. Counting all pairs anew for every merge would take
hours; a merge changes only the words that hold its pair and there only the neighbouring pairs. So an index leads
from each pair to its words, counts are kept up to date by the difference, and a heap finds the largest, with its
entries corrected when they surface. Of pairs that occur equally often, the one with the lowest ids wins.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import add

from clearhead.errors import InputError
from clearhead.tokenizer.base import SPECIAL, check_special
from clearhead.tokenizer.bytepair import ALPHABET, BytePair, Merge
from clearhead.tokenizer.corpus import count_words

Progress = Callable[[str, int, int | None], None]  # what is being done, how much of it, of how much if known


def train(
    texts: Iterable[str],
    vocab_size: int,
    *,
    special: Sequence[str] = SPECIAL,
    pattern: str = "gpt2",
    workers: int | None = None,
    progress: Progress | None = None,
    at_most: bool = False,
) -> BytePair:
    """A tokenizer of `vocab_size` tokens: the special ones first, then the 256 bytes, then what was learned.

    Special tokens in the texts are ordinary text. The result does not depend on the number of workers. A text that
    has too few pairs is refused; with `at_most`, it gives a token for each pair that occurs twice, and no more.
    """
    check_special(special)
    smallest = len(special) + 256
    if vocab_size < smallest:
        raise InputError(
            f"a vocabulary of {vocab_size} is too small: {len(special)} special tokens and 256 bytes need {smallest}"
        )
    if isinstance(texts, str):
        raise InputError("texts is one string; give an iterable of strings, such as [text]")
    read = 0

    def reading(characters: int) -> None:
        nonlocal read
        read += characters
        if progress is not None:
            progress("reading", read, None)

    counts = count_words(texts, pattern, workers, reading)
    merges = learn_merges(counts, vocab_size - smallest, special, progress, rarest=2 if at_most else 1)
    vocabulary = {bytes([byte]): number for number, byte in enumerate(ALPHABET, len(special))}
    vocabulary |= {left + right: number for number, (left, right) in enumerate(merges, smallest)}
    if len(merges) < vocab_size - smallest and not at_most:
        raise InputError(
            f"a vocabulary of {vocab_size} is too large for this text: after {len(merges)} merges no pair is left, "
            f"so {smallest + len(merges)} is the most it can give"
        )
    return BytePair(vocabulary, merges, {name: number for number, name in enumerate(special)}, pattern)


def learn_merges(
    counts: Mapping[str, int],
    new_tokens: int,
    special: Sequence[str] = (),
    progress: Progress | None = None,
    rarest: int = 1,
) -> list[Merge]:
    """The merges, in order, that make `new_tokens` new tokens out of counted words; fewer if no pair is left that
    occurs so often as `rarest`."""
    order = bytes(ALPHABET.index(byte) for byte in range(256))
    words = [word.encode("utf-8", "surrogateescape").translate(order).decode("latin-1") for word in counts]
    times = list(counts.values())
    pair_times, holders = _count_pairs(words, times)
    heap = [(-count, pair) for pair, count in pair_times.items()]
    heapify(heap)

    spelled = [bytes([byte]) for byte in ALPHABET]  # symbol -> bytes
    forbidden = {name.encode() for name in special}  # a learned token must not look like a special one
    merges: list[Merge] = []
    while len(spelled) < 256 + new_tokens and heap:
        negative, pair = heappop(heap)
        count = pair_times.get(pair, 0)
        if count != -negative:  # it has changed since it was pushed; it comes again when its turn is
            if count > 0:
                heappush(heap, (-count, pair))
            continue
        left, right = spelled[ord(pair[0])], spelled[ord(pair[1])]
        if count < rarest or left + right in forbidden:
            continue
        # No other pair can ever spell this token again: wherever its bytes stand unbroken, the same merges led to
        # this very pair, and all of these are joined now.
        merges.append((left, right))
        for new_pair in _apply(pair, chr(len(spelled)), words, times, pair_times, holders):
            if pair_times[new_pair] > 0:
                heappush(heap, (-pair_times[new_pair], new_pair))
        spelled.append(left + right)
        if progress is not None:
            progress("merging", len(spelled) - 256, new_tokens)
    return merges


def _count_pairs(words: list[str], times: list[int]) -> tuple[dict[str, int], dict[str, list[int]]]:
    """How often each pair occurs in the corpus, and which words hold it."""
    pair_times: defaultdict[str, int] = defaultdict(int)
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for number, word in enumerate(words):
        for pair in map(add, word, word[1:]):
            pair_times[pair] += times[number]
            holders[pair].append(number)
    return pair_times, holders


def _apply(
    pair: str,
    new: str,
    words: list[str],
    times: list[int],
    pair_times: dict[str, int],
    holders: dict[str, list[int]],
) -> set[str]:
    """Make one symbol of the pair in every word that holds it; returns the pairs that this brings about."""
    left_of: defaultdict[str, list[int]] = defaultdict(list)  # neighbour -> the words where it stands on that side
    right_of: defaultdict[str, list[int]] = defaultdict(list)
    new_pairs = set()
    for number in holders.pop(pair):
        word = words[number]
        merged = words[number] = word.replace(pair, new)
        joined = len(word) - len(merged)
        if joined == 1:
            place = merged.index(new)
            if place:
                left_of[merged[place - 1]].append(number)
            if place + 1 < len(merged):
                right_of[merged[place + 1]].append(number)
        elif joined:  # several times in one word, where neighbours may be such pairs themselves: count it anew
            for old in map(add, word, word[1:]):
                pair_times[old] -= times[number]
            for made in map(add, merged, merged[1:]):
                pair_times[made] += times[number]
                if new in made:
                    holders[made].append(number)
                    new_pairs.add(made)
    on_the_left = ((other + pair[0], other + new, numbers) for other, numbers in left_of.items())
    on_the_right = ((pair[1] + other, new + other, numbers) for other, numbers in right_of.items())
    for old, made, numbers in chain(on_the_left, on_the_right):
        moved = sum(map(times.__getitem__, numbers))
        pair_times[old] -= moved
        pair_times[made] += moved
        holders[made] += numbers
        new_pairs.add(made)
    del pair_times[pair]
    return new_pairs
