"""One word at a time: short and long words, dropout and the explanation all follow the one definition."""

import random
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from clearhead.tokenizer import BytePair
from clearhead.tokenizer.bytepair import ALPHABET
from clearhead.tokenizer.huggingface import printable
from clearhead.tokenizer.merge import (
    LONG,
    Merges,
    merge,
    merge_long,
    merge_steps,
    merge_with_dropout,
    whole_symbols,
    words_after_a_merge,
)

LETTERS = "ab"


@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Any merges over two letters: in no learnable order, and often with two that make the same token."""
    tokens, merges = list(LETTERS), []
    for _ in range(draw(st.integers(1, 12))):
        pair = (draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens)))
        if pair not in merges:
            merges.append(pair)
            tokens = sorted({*tokens, "".join(pair)})
    return draw(st.permutations(merges))


def tabulate(merges: list[tuple[str, str]]) -> tuple[Merges, dict[str, str]]:
    """The merges over symbols, and the symbol of each token."""
    tokens = sorted({*LETTERS, *(part for pair in merges for part in pair), *map("".join, merges)})
    symbol = {token: chr(number) for number, token in enumerate(tokens)}
    pairs = [symbol[left] + symbol[right] for left, right in merges]
    made = [symbol[left + right] for left, right in merges]
    return Merges(pairs, made, {pair: rank for rank, pair in enumerate(pairs)}), symbol


def by_definition(word: list[str], merges: list[tuple[str, str]]) -> list[str]:
    """Join the leftmost pair of the lowest rank, until no pair has a rank."""
    while True:
        ranked = [(merges.index(pair), place) for place, pair in enumerate(pairwise(word)) if pair in merges]
        if not ranked:
            return word
        _, place = min(ranked)
        word = [*word[:place], word[place] + word[place + 1], *word[place + 2 :]]


@settings(max_examples=300)
@example(merges=[("ab", "a"), ("a", "b")], text="abab")  # the first "ab" makes a pair that goes before the second
@given(merges=merge_lists(), text=st.text(LETTERS, max_size=24))
def test_every_way_of_merging_follows_the_definition(merges: list[tuple[str, str]], text: str) -> None:
    table, symbol = tabulate(merges)
    word = "".join(symbol[letter] for letter in text)
    wanted = "".join(symbol[token] for token in by_definition(list(text), merges))
    assert merge(word, table) == wanted
    assert merge_long(word, table) == wanted
    assert [word, *(after for _, _, after in merge_steps(word, table))][-1] == wanted
    assert merge_with_dropout(word, partial(words_after_a_merge, merges=table), 0.0, random.Random(0)) == wanted


@given(merges=merge_lists(), text=st.text(LETTERS, min_size=1, max_size=300))
def test_any_merges_give_what_tokenizers_gives(merges: list[tuple[str, str]], text: str) -> None:
    table, symbol = tabulate(merges)
    peer = Tokenizer(models.BPE({token: ord(sign) for token, sign in symbol.items()}, merges))
    assert list(map(ord, merge("".join(symbol[letter] for letter in text), table))) == peer.encode(text).ids


@settings(max_examples=300)
@given(pairs=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=16))
def test_whole_symbols_are_those_their_own_bytes_make(pairs: list[tuple[int, int]]) -> None:
    tokens, merges = list(LETTERS), []
    for left, right in pairs:  # in a learnable order, but not as any text would teach them: many are not whole
        pair = (tokens[left % len(tokens)], tokens[right % len(tokens)])
        if "".join(pair) not in tokens and len("".join(pair)) < 20:
            merges.append(pair)
            tokens.append("".join(pair))
    table, symbol = tabulate(merges)
    wanted = {symbol[token] for token in tokens[2:] if by_definition(list(token), merges) == [token]}
    assert whole_symbols(table) == wanted


def test_every_token_of_gpt2_is_whole(gpt2: BytePair) -> None:
    assert whole_symbols(gpt2._merges) == set(gpt2._merges.made)
    sample = list(gpt2.vocabulary.items())[::25]
    assert all(gpt2.encode_word(token) == [number] for token, number in sample)


@pytest.mark.parametrize("merges", [[("a", "b"), ("b", "a"), ("ab", "a"), ("a", "ba")], [("ab", "a"), ("a", "b")]])
def test_of_merges_in_no_learnable_order_none_is_claimed_whole(merges: list[tuple[str, str]]) -> None:
    assert whole_symbols(tabulate(merges)[0]) == set()


def test_steps_show_rank_place_and_word() -> None:
    table, symbol = tabulate([("b", "b"), ("a", "bb")])
    steps = list(merge_steps("".join(symbol[letter] for letter in "abba"), table))
    assert steps == [(0, 1, symbol["a"] + symbol["bb"] + symbol["a"]), (1, 0, symbol["abb"] + symbol["a"])]


def test_words_around_the_limit_of_short_ones(gpt2: BytePair) -> None:
    chance = random.Random(1)
    for length in (1, LONG - 1, LONG, LONG + 1, 3 * LONG):
        word = "".join(map(chr, gpt2.encode_word(bytes(chance.choices(b"etaoin shrdlu", k=length)))))
        start = "".join(chance.choices([chr(number) for number in range(256)], k=length))
        assert merge(start, gpt2._merges) == merge_long(start, gpt2._merges)
        assert merge(word, gpt2._merges) == merge_long(word, gpt2._merges)


def test_cost_grows_with_length_and_not_with_its_square(gpt2: BytePair) -> None:
    """Counted in dictionary look-ups, which is the work there is: four times the word, about four times as many."""

    class Counted(dict[str, int]):
        looks = 0

        def get(self, *arguments: Any) -> Any:
            Counted.looks += 1
            return super().get(*arguments)

    table = Merges(gpt2._merges.pairs, gpt2._merges.made, Counted(gpt2._merges.ranks))
    chance = random.Random(2)
    letters = [gpt2._as_symbols(letter) for letter in "etaoinshrdlu"]
    looks = []
    for length in (5_000, 20_000):
        Counted.looks = 0
        merge("".join(chance.choices(letters, k=length)), table)
        looks.append(Counted.looks)
    assert looks[1] < 4.4 * looks[0]


def test_a_million_equal_letters_is_an_ordinary_word(gpt2: BytePair) -> None:
    text = "a" * 1_000_000
    ids = gpt2.encode(text)
    assert gpt2.decode(ids) == text
    assert Counter(ids).most_common(1)[0][1] == 1_000_000 // len(gpt2.token_bytes(ids[0]))


def test_dropout_leaves_out_merges_by_chance(gpt2: BytePair) -> None:
    word = gpt2._as_symbols(" unbelievable")
    everything = merge_with_dropout(word, gpt2._following.__getitem__, 1.0, random.Random(0))
    assert everything == word
    cuts = {merge_with_dropout(word, gpt2._following.__getitem__, 0.3, random.Random(seed)) for seed in range(50)}
    assert len(cuts) > 10
    assert {"".join(gpt2.decode(map(ord, cut))) for cut in cuts} == {" unbelievable"}


def test_dropout_keeps_each_merge_with_its_probability() -> None:
    """A word of one possible merge is merged in a share 1 − p of all draws."""
    table, symbol = tabulate([("a", "b")])
    chance, following = random.Random(5), partial(words_after_a_merge, merges=table)
    word = symbol["a"] + symbol["b"]
    merged = sum(len(merge_with_dropout(word, following, 0.25, chance)) == 1 for _ in range(4000))
    assert merged == pytest.approx(3000, abs=120)  # four standard deviations


def test_alphabet_is_the_order_of_the_printed_characters() -> None:
    shown = [printable(bytes([byte])) for byte in ALPHABET]
    assert shown == sorted(shown)
    assert len(set(shown)) == 256
