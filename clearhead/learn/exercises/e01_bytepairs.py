"""Merge one byte pair, then learn merges."""

from collections.abc import Mapping
from typing import Any

from clearhead.learn.exercise import Bug, Draw, Exercise, Sizes, Trial
from clearhead.learn.mistakes.bytepairs import MISTAKES

SMALL = {"N": 6, "L": 3}  # tokens, and different ones
CORPUS = {"W": 20, "L": 3, "N": 6, "M": 8}  # words of up to N letters, L different ones; merges

Words = dict[tuple[int, ...], int]


def random_merge(sizes: Sizes, draw: Draw) -> tuple[Any, ...]:
    ids = draw.integers(1, sizes.L + 1, sizes.N).tolist()
    return ids, (1, sizes.L), 256


def random_words(sizes: Sizes, draw: Draw) -> tuple[Any, ...]:
    words: Words = {}
    for _ in range(sizes.W):
        length = int(draw.integers(1, sizes.N + 1, 1))
        words[tuple((draw.integers(0, sizes.L, length) + 97).tolist())] = int(draw.integers(1, 9, 1))
    return words, sizes.M


def fixed(*arguments: Any) -> Any:
    return lambda sizes, draw: arguments


def merging(ids: list[int], pair: tuple[int, int], new: int) -> Trial:
    return Trial("merge", fixed(ids, pair, new), sizes={}, gradients=False)


def learning(words: Words, count: int) -> Trial:
    return Trial("learn_merges", fixed(words, count), sizes={}, gradients=False)


def picture(parts: Mapping[str, Any]) -> str:
    """A sentence in the learner's own tokens."""
    merges = parts["learn_merges"]({tuple(b"lower"): 5, tuple(b"lowest"): 3, tuple(b"newest"): 6}, 6)
    spelled = {byte: bytes([byte]) for byte in range(256)}
    for number, (left, right) in enumerate(merges):
        spelled[256 + number] = spelled[left] + spelled[right]
    said = []
    for word in ("lower", "lowest", "new"):
        ids = list(word.encode())
        for number, pair in enumerate(merges):
            ids = parts["merge"](ids, pair, 256 + number)
        said.append("".join(f"[{spelled[token].decode()}]" for token in ids))
    return f'"lower lowest new" is now {" ".join(said)}'


EXERCISE = Exercise(
    name="bytepairs",
    question="Which neighbours become one token next?",
    about="A model reads numbers, and a text must become them. Byte-pair encoding begins with the 256 bytes and, "
    "again and again, makes one new token of the two neighbours that occur together most often in words: "
    "frequent words become one token, rare ones stay in pieces, and nothing is unknown.",
    section="section 5.1 (and Sennrich et al., 2016)",
    shapes="""
    merge: a list of token ids, a pair of ids, the new id -> the new list
    learn_merges: {word as a tuple of ids: how often it occurs}, count -> pairs; merge n, from 0, makes token 256 + n
    Every pair of neighbours in a word counts as often as the word occurs, overlapping ones too: aaa has (a, a) twice.
    Of equally frequent pairs the lowest wins. No pair reaches over the end of a word.
    """,
    allowed="plain Python and collections",
    source="bytepairs",
    parts=("merge", "learn_merges"),
    trials=(
        merging([1, 2, 3], (1, 2), 256),
        merging([1, 1, 1], (1, 1), 256),
        merging([3, 1], (1, 2), 256),
        merging([2, 1, 2], (1, 2), 256),
        merging([1, 2, 1, 2], (1, 2), 256),
        merging([11, 2, 1, 25, 1, 2], (1, 2), 256),
        merging([], (1, 2), 256),
        Trial("merge", random_merge, sizes=SMALL, gradients=False),
        Trial("merge", random_merge, sizes={"N": 40, "L": 2}, gradients=False),
        learning({(97, 98): 1, (99, 100): 5}, 1),
        learning({(97, 98): 2, (98, 97): 2}, 1),
        learning({(98, 97): 2, (97, 98): 2}, 1),
        learning({(97, 98): 1, (98, 99): 1}, 1),
        learning({(97, 99): 1, (97, 98): 1}, 1),
        learning({(97, 97, 97): 1, (98, 99): 1}, 1),
        learning({(97, 98, 99): 3, (98, 99): 1, (97, 98): 2}, 3),
        learning({(97,): 5, (98, 97): 1}, 3),
        Trial("learn_merges", random_words, sizes=CORPUS, gradients=False),
        Trial("learn_merges", random_words, sizes={"W": 200, "L": 3, "N": 6, "M": 20}, gradients=False),
    ),
    mistakes=MISTAKES,
    hints=(
        "After merging at i, where do you look next? And which words does a merge change?",
        "Lists of ints all the way; a word is a tuple, because it is a key of the dictionary.",
        "In merge: `i += 2` after a pair, `i += 1` otherwise. "
        "In learn_merges: `best = min(times, key=lambda pair: (-times[pair], pair))`, then merge every word.",
    ),
    after="Any text can now be written in tokens of your own.",
    lab="vocabulary",
    ours="clearhead/tokenizer/learn.py",
    picture=picture,
    bug=Bug(
        "learn_merges",
        (("min(times, key=lambda pair: (-times[pair], pair))", "max(times, key=lambda pair: times[pair])"),),
        "learn_merges({(97, 98): 3, (99, 100): 1}, 1)  # [(97, 98)], as it should be",
        "of equally frequent pairs the first seen was taken: the same corpus in another order gave another tokenizer",
    ),
)
