"""Which examples make up which batch: like lengths together, and in another order every epoch.

A batch is as wide as its longest sequence, so a short sentence beside a long one is mostly padding, and padding costs
as much as text. Section 5.1 of the paper: "Sentence pairs were batched together by approximate sequence length. Each
training batch contained a set of sentence pairs containing approximately 25000 source tokens and 25000 target tokens."

Nothing is held of an epoch but one block of it, of half a million examples at most: which examples a block has is a
function of (seed, epoch, block), a permutation that is computed for any place without the others (a Feistel network).
The same function mixes several corpora by weight.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clearhead.data.batch import Lengths, generator, mixed
from clearhead.errors import InputError

BLOCK = 1 << 19  # examples that are planned at once
MEMBERS = 3  # what a random generator is for
ROUNDS = 4  # of the Feistel network

# Bounds on the positions of a batch, padding included, as multiples of `max_tokens`: one long sentence after many short
# ones starts a batch of its own, and sources much longer than their targets do not fill the memory.
TARGET_ROOM, SOURCE_ROOM = 1.25, 4


def plan_by_length(
    targets: Lengths,  # tokens that each example predicts
    sources: Lengths,  # tokens that it reads besides
    seed: int,
    epoch: int,
    max_tokens: int,
    block: int = 0,
    chosen: Lengths | None = None,  # the numbers of these examples; None: from 0
) -> list[list[int]]:
    """Batches of at most `max_tokens` target tokens, padding not counted, in a random order.

    Examples are sorted by target length, two lengths to a group, and within a group by source length, back and forth
    (rising in one group, falling in the next), so that a batch which spans two groups still holds similar sources. Ties
    are broken by the shuffle, and a random first cut moves all the others, so batches differ from epoch to epoch.
    """
    random = of_block(seed, epoch, block)
    order = random.permutation(len(targets))
    groups = targets // 2
    forth_and_back = np.where(groups % 2 == 0, sources, -sources)
    order = order[np.lexsort((targets[order], forth_and_back[order], groups[order]))]
    widest = int(targets.max())
    if widest > max_tokens:
        raise InputError(
            f"an example has {widest} target tokens, more than a batch may hold: max_tokens = {max_tokens}; "
            "raise training.max_tokens or lower data.max_length"
        )
    batches = []
    start, tokens = 0, int(random.integers(widest, max_tokens + 1))
    while start < len(order):
        candidates = order[start : start + tokens]  # no more can fit: each has at least one token
        size = fitting(targets[candidates], sources[candidates], tokens)
        batches.append((candidates[:size] if chosen is None else chosen[candidates[:size]]).tolist())
        start, tokens = start + size, max_tokens
    return [batches[i] for i in random.permutation(len(batches))]


def fitting(targets: Lengths, sources: Lengths, max_tokens: int) -> int:
    """How many of the first examples make up a batch; at least one."""
    rows = np.arange(1, len(targets) + 1)
    fits = np.cumsum(targets) <= max_tokens
    fits &= rows * np.maximum.accumulate(targets) <= TARGET_ROOM * max_tokens
    fits &= rows * np.maximum.accumulate(sources) <= SOURCE_ROOM * max_tokens
    return max(1, int(fits.sum()))


def plan_evenly(chosen: Lengths, rows: int, seed: int, epoch: int, block: int = 0) -> list[list[int]]:
    """Examples of one length, shuffled, in batches of at most `rows`, of nearly equal size."""
    order = chosen[of_block(seed, epoch, block).permutation(len(chosen))]
    return [part.tolist() for part in np.array_split(order, -(-len(chosen) // rows))]


def of_block(seed: int, epoch: int, block: int) -> np.random.Generator:
    """The random numbers of a block; those of the first are the epoch's."""
    return generator(seed, epoch, block) if block else generator(seed, epoch)


# ---- which examples a block has ------------------------------------------------------------------------------------


def count_blocks(examples: int) -> int:
    return max(1, -(-examples // BLOCK))


def members(sizes: Sequence[int], weights: Sequence[float] | None, seed: int, epoch: int, block: int) -> Lengths:
    """The examples of a block, of corpora of these sizes that lie one after the other.

    Without weights, an epoch has every example once. With them, it has as many examples as there are, of which each
    corpus gives its share (rounded to whole examples): from its own endless row of shuffled passes, which the next epoch
    goes on with. So a small corpus is repeated, and of a large one nothing is left out for ever.
    """
    total = sum(sizes)
    places = np.arange(block * BLOCK, min(total, (block + 1) * BLOCK))
    if total > BLOCK or weights is not None:
        places = shuffled(places, total, key_of(seed, epoch))
    if weights is None:
        return places
    edges = np.rint(np.cumsum(weights) / sum(weights) * total).astype(np.int64)
    which = np.searchsorted(edges, places, side="right")
    result = np.empty_like(places)
    for number, size in enumerate(sizes):
        mine = which == number
        start = int(edges[number - 1]) if number else 0
        drawn = epoch * (int(edges[number]) - start) + places[mine] - start  # how many this corpus gave before
        passes, within = np.divmod(drawn, size)
        keys = mixed(passes.astype(np.uint64) + key_of(seed, number, 1))
        result[mine] = sum(sizes[:number]) + shuffled(within, size, keys)
    return result


def key_of(*words: int) -> NDArray[np.uint64]:
    return generator(*words, MEMBERS).integers(0, 1 << 64, size=1, dtype=np.uint64)


def shuffled(places: Lengths, size: int, keys: NDArray[np.uint64]) -> Lengths:
    """Where permutations of range(size), one for each key, take these places: a Feistel network over the next power of
    four, applied again to whatever it takes out of the range (Black and Rogaway, 2002)."""
    half = np.uint64(max(1, -(-(size - 1).bit_length() // 2)))
    mask = np.uint64((1 << int(half)) - 1)
    result = places.astype(np.uint64)
    keys = np.broadcast_to(keys, result.shape)
    left_over = np.arange(len(result))
    while len(left_over):
        x, own = result[left_over], keys[left_over]
        high, low = x >> half, x & mask
        for number in range(ROUNDS):
            turn = mixed(low + own + np.uint64(number << 40))
            high, low = low, high ^ (turn & mask)
        result[left_over] = (high << half) | low
        left_over = left_over[result[left_over] >= size]
    return result.astype(np.int64)
