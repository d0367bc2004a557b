"""The loop of `merge.py` compiled by numba, the extra `clearhead[fast]`: word after word, in arrays.

`many.py` calls it where there is enough to merge; the machine code is kept beside this file, or where numba keeps it.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.tokenizer.many import LONGEST, SPREADING, SYMBOL_BITS

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_SPREADING = np.uint64(SPREADING)
NEVER = np.int64(1 << 62)


@cache
def compiled() -> "Callable[..., Array]":
    """`merge_all` as machine code."""
    from numba import njit
    from numba.extending import register_jitable

    register_jitable(_rank)
    loop: Callable[..., Array] = njit(cache=True)(merge_all)
    return loop


def _rank(left: int, right: int, keys: "Array", ranks: "Array", shift: int) -> Any:
    wanted = np.int64(left) << SYMBOL_BITS | np.int64(right)
    slot: Any = np.int64((np.uint64(wanted) * _SPREADING) >> np.uint64(shift))
    while keys[slot] != wanted:
        if keys[slot] < 0:
            return NEVER
        slot += 1
        if slot == len(keys):
            slot = 0
    return ranks[slot]


def merge_all(symbols: "Array", ends: "Array", keys: "Array", ranks: "Array", made: "Array", shift: int) -> "Array":
    """Merge each word, in place and closed up; `ends` says where each ends, what comes back where it ends then."""
    waiting = np.empty(LONGEST, np.int64)  # the rank of each symbol with the next
    merged_ends = np.empty_like(ends)
    start = filled = 0
    for number in range(len(ends)):
        length = ends[number] - start
        word = symbols[start : ends[number]]
        for place in range(length - 1):
            waiting[place] = _rank(word[place], word[place + 1], keys, ranks, shift)
        while length > 1:
            lowest, place = NEVER, -1
            for candidate in range(length - 1):
                if waiting[candidate] < lowest:
                    lowest, place = waiting[candidate], candidate
            if place < 0:
                break
            word[place] = made[lowest]
            length -= 1
            for later in range(place + 1, length):
                word[later] = word[later + 1]
                waiting[later - 1] = waiting[later]
            if place > 0:
                waiting[place - 1] = _rank(word[place - 1], word[place], keys, ranks, shift)
            if place + 1 < length:
                waiting[place] = _rank(word[place], word[place + 1], keys, ranks, shift)
        for place in range(length):
            symbols[filled + place] = word[place]
        filled += length
        start = ends[number]
        merged_ends[number] = filled
    return merged_ends
