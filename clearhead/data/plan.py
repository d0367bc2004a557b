"""Which examples make up which batch: like lengths together, and in another order every epoch.

A batch is as wide as its longest sequence, so a short sentence beside a long one is mostly padding, and padding costs
as much as text. Section 5.1 of the paper: "Sentence pairs were batched together by approximate sequence length. Each
training batch contained a set of sentence pairs containing approximately 25000 source tokens and 25000 target tokens."
"""

import numpy as np

from clearhead.data.batch import Lengths, generator
from clearhead.errors import InputError

# Bounds on the positions of a batch, padding included, as multiples of `max_tokens`: one long sentence after many short
# ones starts a batch of its own, and sources much longer than their targets do not fill the memory.
TARGET_ROOM, SOURCE_ROOM = 1.25, 4


def plan_by_length(
    targets: Lengths,  # tokens that each example predicts
    sources: Lengths,  # tokens that it reads besides
    seed: int,
    epoch: int,
    max_tokens: int,
) -> list[list[int]]:
    """Batches of at most `max_tokens` target tokens, padding not counted, in a random order.

    Examples are sorted by target length, two lengths to a group, and within a group by source length, back and forth
    (rising in one group, falling in the next), so that a batch which spans two groups still holds similar sources. Ties
    are broken by the shuffle, and a random first cut moves all the others, so batches differ from epoch to epoch.
    """
    random = generator(seed, epoch)
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
        batches.append(candidates[:size].tolist())
        start, tokens = start + size, max_tokens
    return [batches[i] for i in random.permutation(len(batches))]


def fitting(targets: Lengths, sources: Lengths, max_tokens: int) -> int:
    """How many of the first examples make up a batch; at least one."""
    rows = np.arange(1, len(targets) + 1)
    fits = np.cumsum(targets) <= max_tokens
    fits &= rows * np.maximum.accumulate(targets) <= TARGET_ROOM * max_tokens
    fits &= rows * np.maximum.accumulate(sources) <= SOURCE_ROOM * max_tokens
    return max(1, int(fits.sum()))


def plan_evenly(examples: int, rows: int, seed: int, epoch: int) -> list[list[int]]:
    """Examples of one length, shuffled, in batches of at most `rows`, of nearly equal size."""
    order = generator(seed, epoch).permutation(examples)
    return [part.tolist() for part in np.array_split(order, -(-examples // rows))]
