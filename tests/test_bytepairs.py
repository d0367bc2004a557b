"""Byte pairs in one file learn what the tokenizer learns, and write every text so that it can be read again."""

import random

from hypothesis import given
from hypothesis import strategies as st

from clearhead.bytepairs import decode, encode, learn_merges
from clearhead.tokenizer.bytepair import ALPHABET
from clearhead.tokenizer.learn import learn_merges as learned

BYTE = {byte: number for number, byte in enumerate(ALPHABET)}


def test_the_merges_are_those_of_the_tokenizer() -> None:
    """Whose ids follow GPT-2's alphabet, in which letters are in their usual order: ties are then the same."""
    chance = random.Random(0)
    for _ in range(20):
        words = {"".join(chance.choices("abc", k=chance.randint(1, 8))): chance.randint(1, 9) for _ in range(30)}
        mine = learn_merges({tuple(word.encode()): times for word, times in words.items()}, 12)
        spelled = {byte: bytes([byte]) for byte in range(256)}
        for number, (left, right) in enumerate(mine):
            spelled[256 + number] = spelled[left] + spelled[right]
        assert [(spelled[left], spelled[right]) for left, right in mine] == learned(words, 12)


MERGES = learn_merges({tuple(b"lower"): 5, tuple(b"lowest"): 3, tuple("größe".encode()): 2}, 20)


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_every_text_comes_back(text: str) -> None:
    assert decode(encode(text, MERGES), MERGES) == text


def test_words_become_fewer_tokens() -> None:
    merges = learn_merges({tuple(b"lower"): 5, tuple(b"lowest"): 3}, 3)
    assert len(encode("lower lowest", merges)) == 6


def test_pairs_run_out() -> None:
    assert learn_merges({(1, 1): 1}, 9) == [(1, 1)]
