"""Applying learned merges to one word: again and again join the adjacent pair that was learned first.

Byte-pair encoding of words is from Sennrich et al. (2016, section 3.2). Throughout, one token is one character,
`chr(id)`, and a word is a `str` of them: a pair is then a string of two characters, to look up in a dictionary of ranks
at the speed of C. Ids up to 0x10FFFF fit, far beyond any vocabulary. Where several places hold the pair of lowest
rank, the leftmost is joined first.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise, repeat
from operator import add

NEVER = 1 << 62  # the rank of a pair that was not learned
LONG = 128  # from this many symbols on, looking at every pair at each step costs more than a heap


@dataclass(frozen=True)
class Merges:
    """What was learned: pairs in the order of learning, and the symbol that each makes."""

    pairs: list[str]  # rank -> two symbols
    made: list[str]  # rank -> one symbol
    ranks: dict[str, int]  # two symbols -> rank


def merge(word: str, merges: Merges) -> str:
    """The word after all merges that apply to it."""
    if len(word) >= LONG:
        return merge_long(word, merges)
    rank_of, made = merges.ranks.get, merges.made
    symbols = list(word)
    ranks = [*map(rank_of, map(add, word, word[1:]), repeat(NEVER)), NEVER]  # of each symbol with the next
    while (rank := min(ranks)) != NEVER:
        place = ranks.index(rank)
        new = symbols[place] = made[rank]
        del symbols[place + 1], ranks[place]
        if place:
            ranks[place - 1] = rank_of(symbols[place - 1] + new, NEVER)
        if place + 1 < len(symbols):
            ranks[place] = rank_of(new + symbols[place + 1], NEVER)
    return "".join(symbols)


def merge_long(word: str, merges: Merges) -> str:
    """The same in near-linear time: places wait in one list for each rank, and a heap tells the lowest rank."""
    rank_of, made = merges.ranks.get, merges.made
    end = len(word)
    symbols = list(word)  # "" where a symbol has been joined to the one on its left
    before = list(range(-1, end - 1))
    after = list(range(1, end + 1))
    places: defaultdict[int, list[int]] = defaultdict(list)  # rank -> left ends of pairs; some may be gone by now
    for place, rank in enumerate(map(rank_of, map(add, word, word[1:]), repeat(NEVER))):
        places[rank].append(place)
    places.pop(NEVER, None)
    heap = list(places)
    heapify(heap)
    while heap:
        rank = heappop(heap)
        waiting = sorted(places.pop(rank))
        first, second = merges.pairs[rank][0], merges.pairs[rank][1]
        new = made[rank]
        for number, left in enumerate(waiting):
            right = after[left]
            if symbols[left] != first or right == end or symbols[right] != second:
                continue
            symbols[left], symbols[right] = new, ""
            after[left] = ahead = after[right]
            if ahead < end:
                before[ahead] = left
            lowest = rank
            for place in (before[left], left):
                if place >= 0 and after[place] < end:
                    found = rank_of(symbols[place] + symbols[after[place]], NEVER)
                    if found != NEVER:
                        if found not in places:
                            heappush(heap, found)
                        places[found].append(place)
                        lowest = min(lowest, found)
            if lowest < rank:  # never in merges as they are learned, but a file may list them in any order
                heappush(heap, rank)
                places[rank] = waiting[number + 1 :]
                break
    return "".join(symbols)


def whole_symbols(merges: Merges) -> set[str]:
    """The symbols that the merges make of their own bytes alone, so that such a word need not be merged to know it.

    That is nearly always all of them. A symbol is whole if its two parts are, and if nothing joins across the border
    between these before they are joined themselves. Of merges in no learnable order, none is claimed.
    """
    ever_made = set(merges.made)
    born: dict[str, int] = {}  # symbol -> the rank that makes it
    whole: set[str] = set()
    for rank, (pair, new) in enumerate(zip(merges.pairs, merges.made, strict=True)):
        if new in born or any(part in ever_made and part not in born for part in pair):
            return set()
        if all(part in whole or part not in ever_made for part in pair) and _stay_apart(pair, rank, merges, born):
            whole.add(new)
        born[new] = rank
    return whole


def _stay_apart(pair: str, limit: int, merges: Merges, born: dict[str, int]) -> bool:
    """Whether nothing joins across the border of two symbols before rank `limit`, looked for backwards in time."""
    while merges.ranks.get(pair, NEVER) >= limit:
        born_left, born_right = born.get(pair[0], -1), born.get(pair[1], -1)
        if born_left > born_right:  # the younger one is undone: what stood at the border before it was made?
            limit, pair = born_left, merges.pairs[born_left][1] + pair[1]
        elif born_right >= 0:
            # of equal ranks the leftmost goes first, so here one across the border would have gone before
            limit, pair = born_right + 1, pair[0] + merges.pairs[born_right][0]
        else:
            return True  # back at two bytes
    return False


def merge_steps(word: str, merges: Merges) -> Iterator[tuple[int, int, str]]:
    """Each merge as it happens: its rank, where its symbol now stands, and the word after it."""
    while len(word) > 1:
        rank = min(merges.ranks.get(left + right, NEVER) for left, right in pairwise(word))
        if rank == NEVER:
            return
        place = word.index(merges.pairs[rank])
        word = word[:place] + merges.made[rank] + word[place + 2 :]
        yield rank, place, word


def merge_with_dropout(
    word: str, following: Callable[[str], list[str]], dropout: float, generator: random.Random
) -> str:
    """BPE-dropout (Provilkov et al., 2020, section 3): at each step every possible merge is left out by chance.

    The same word is thus cut differently each time, which teaches a model what its tokens are made of. `following`
    gives the words that one merge makes of another; of those that are not left out, the first is taken.
    """
    chance = generator.random
    while True:
        for after in following(word):
            if chance() >= dropout:
                word = after
                break
        else:
            return word


def words_after_a_merge(word: str, merges: Merges) -> list[str]:
    """The word after each merge that applies to it, the one that was learned first coming first."""
    ranks = map(merges.ranks.get, map(add, word, word[1:]), repeat(NEVER))
    found = sorted((rank, place) for place, rank in enumerate(ranks) if rank != NEVER)
    return [word[:place] + merges.made[rank] + word[place + 2 :] for rank, place in found]
