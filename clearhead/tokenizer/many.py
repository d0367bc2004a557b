"""Merging many words at once: the loop of `merge.py`, step by step for all words together, in arrays.

Text without spaces is mostly words never seen before, and there Python's loop is what takes the time. Here the words of
about one length stand side by side, one a column. Each step finds every word's pair of lowest rank, leftmost first, and
joins it; a symbol that has been joined to the one on its left is skipped from then on. Where numba is installed
(`clearhead[fast]`) and there is enough to merge, the same loop is compiled instead (`compiled.py`).
"""

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from clearhead.tokenizer.merge import LONG, Merges

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LONGEST = 4 * LONG  # bytes of a word: a character has at most four
SPREAD = 1.25  # words of one block differ in length by at most this factor
BLOCK = 1 << 17  # symbols side by side, so that a block stays in the cache
PAYS = 2_000_000  # bytes merged, after which loading numba (about a second) pays for itself
SYMBOL_BITS = 21  # ids up to 0x10FFFF
SPREADING = 0x9E3779B97F4A7C15  # 2⁶⁴ / golden ratio: Knuth's multiplicative hashing
_merged_bytes = 0


@dataclass(frozen=True)
class PairTable:
    """Two symbols -> rank, as a hash table with open addressing that numpy can search for many pairs at once."""

    keys: "Array"  # (slots,) left << SYMBOL_BITS | right, or -1 where the slot is free
    ranks: "Array"  # (slots,)
    made: "Array"  # rank -> symbol
    shift: int  # how far a hash is moved to the right to be a slot
    never: int  # the rank of a pair that was not learned

    @property
    def kind(self) -> "type[np.int32 | np.int64]":
        """Integers that hold a rank and, in the ten bits below it, a place: 32 bits are faster."""
        import numpy as np

        return np.int32 if self.never < 1 << 21 else np.int64


def pair_table(merges: Merges) -> PairTable:
    import numpy as np

    pairs = np.frombuffer("".join(merges.pairs).encode("utf-32-le", "surrogatepass"), "<u4").reshape(-1, 2)
    wanted = pairs[:, 0].astype(np.int64) << SYMBOL_BITS | pairs[:, 1]
    bits = max(4, (8 * len(wanted)).bit_length())
    keys, ranks = np.full(1 << bits, -1, np.int64), np.zeros(1 << bits, np.int32)
    slots, waiting = _slots(wanted, 64 - bits), np.arange(len(wanted))
    while len(waiting):
        free = waiting[keys[slots[waiting]] == -1]
        _, first = np.unique(slots[free], return_index=True)  # of several that want one slot, one gets it
        placed = free[first]
        keys[slots[placed]], ranks[slots[placed]] = wanted[placed], placed
        waiting = np.setdiff1d(waiting, placed, assume_unique=True)
        slots[waiting] = (slots[waiting] + 1) % len(keys)
    made = np.frombuffer("".join(merges.made).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int32)
    return PairTable(keys, ranks, made, 64 - bits, len(wanted))


def merge_many(words: list[bytes], alphabet: str, table: PairTable) -> list[str]:
    """Each word after all merges that apply to it, as `merge` gives it; none may have more than LONGEST bytes."""
    import numpy as np

    global _merged_bytes
    text = b"".join(words)
    symbols_of = np.array(list(map(ord, alphabet)), np.int32)
    symbols = symbols_of[np.frombuffer(text, np.uint8)]
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    _merged_bytes += len(text)
    if _merged_bytes >= PAYS and find_spec("numba") is not None:
        from clearhead.tokenizer.compiled import compiled

        ends = compiled()(symbols, np.cumsum(lengths), table.keys, table.ranks, table.made, table.shift)
    else:
        symbols, ends = _in_blocks(symbols, lengths, table)
    merged = symbols[: ends[-1]].astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    edges = [0, *ends.tolist()]
    return [merged[start:end] for start, end in pairwise(edges)]


def _in_blocks(symbols: "Array", lengths: "Array", table: PairTable) -> "tuple[Array, Array]":
    """The merged symbols of all words, one word after the other, and where each ends."""
    import numpy as np

    starts = np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    shorter = lengths[order]
    merged = np.empty_like(symbols)  # each word where it stood, and -1 for what is gone
    start = 0
    while start < len(order):
        end = int(np.searchsorted(shorter, max(int(shorter[start]) * SPREAD, int(shorter[start]) + 4), "right"))
        block = order[start : min(end, start + max(256, BLOCK // int(shorter[start])))]
        places = starts[block] + np.arange(int(lengths[block].max()))[:, None]  # (L, W)
        inside = places < (starts + lengths)[block]
        columns = np.where(inside, symbols[np.minimum(places, len(symbols) - 1)], -1)
        merged[places[inside]] = _merge_columns(columns, table)[inside]
        start += len(block)
    left = merged >= 0
    return merged[left], np.cumsum(left)[starts + lengths - 1]


def _merge_columns(columns: "Array", table: PairTable) -> "Array":
    """Words as columns (L, W), -1 below their ends; the same after all merges, with -1 for symbols that are gone."""
    import numpy as np

    length, width = columns.shape
    rows = np.arange(length + 1, dtype=table.kind)[:, None]
    # the last row is below all words: no symbol is there, and so it is part of no pair
    symbols = np.vstack([columns, np.full((1, width), -1, np.int32)])
    after = np.where(rows + 1 < (columns >= 0).sum(0), rows + 1, length)
    before = np.repeat(np.where(rows > 0, rows - 1, length), width, 1)
    keys = np.full((length + 1, width), table.never << 10, table.kind)
    keys[:-1] = _find(symbols[:-1].ravel(), symbols[1:].ravel(), table).reshape(length, width) << 10
    keys |= rows  # the lowest is that of the lowest rank, and of those the leftmost
    result, owners = np.full_like(columns, -1), np.arange(width)
    while True:
        lowest = keys.min(0)
        busy = np.nonzero(lowest < table.never << 10)[0]
        if len(busy) < 0.7 * width:  # leave the columns that are done
            result[:, owners] = symbols[:-1]
            owners, width = owners[busy], len(busy)
            lowest = lowest[busy]
            symbols, after, before, keys = (np.ascontiguousarray(x[:, busy]) for x in (symbols, after, before, keys))
            busy = np.arange(width)
        if not width:
            return result
        _join(lowest[busy], busy, width, (symbols, after, before, keys), table)


def _join(lowest: "Array", busy: "Array", width: int, state: "tuple[Array, ...]", table: PairTable) -> None:
    """One merge in each of the columns `busy`, whose lowest keys are given."""
    import numpy as np

    # all are read and written as one long row each, which is how numpy is fastest at it
    symbols, after, before, keys = (x.reshape(-1) for x in state)
    row = lowest & 1023
    left = row * width + busy
    right = after[left] * width + busy
    row_ahead, row_behind = after[right], before[left]
    ahead, behind = row_ahead * width + busy, row_behind * width + busy
    new = table.made[lowest >> 10]
    symbols[left], symbols[right] = new, -1
    after[left], before[ahead] = row_ahead, row
    ranks = _find(np.concatenate([new, symbols[behind]]), np.concatenate([symbols[ahead], new]), table)
    keys[right] = table.never << 10
    keys[left] = ranks[: len(busy)] << 10 | row
    keys[behind] = ranks[len(busy) :] << 10 | row_behind


def _find(left: "Array", right: "Array", table: PairTable) -> "Array":
    """The ranks of pairs of symbols; -1 is no symbol."""
    import numpy as np

    wanted = left.astype(np.int64) << SYMBOL_BITS | right
    slots = _slots(wanted, table.shift)
    found = table.keys[slots]
    ranks = np.where(found == wanted, table.ranks[slots], table.never).astype(table.kind, copy=False)
    ranks[wanted < 0] = table.never
    searching = np.nonzero((found != wanted) & (found >= 0) & (wanted >= 0))[0]
    while len(searching):
        slots[searching] = (slots[searching] + 1) % len(table.keys)
        found = table.keys[slots[searching]]
        here = found == wanted[searching]
        ranks[searching[here]] = table.ranks[slots[searching[here]]]
        searching = searching[~here & (found >= 0)]
    return ranks


def _slots(keys: "Array", shift: int) -> "Array":
    import numpy as np

    return ((keys.view(np.uint64) * np.uint64(SPREADING)) >> np.uint64(shift)).view(np.int64)
