"""Many words merged at once give what the plain loop gives one by one: in numpy, and compiled where numba is."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.tokenizer import BytePair, compiled, many, train
from clearhead.tokenizer.bytepair import MANY
from clearhead.tokenizer.many import LONGEST, merge_many, pair_table
from clearhead.tokenizer.merge import merge

TEXT = "the theory of the other mother; 日本語の日本、日本の本。 ababababab aaaaaaaaa 東京都と京都の都"


@pytest.fixture(scope="module")
def tokenizer() -> BytePair:
    return train([TEXT * 3, "".join(random.Random(2).choices("ab日本 ", k=3000))], 330)


@pytest.fixture(params=["numpy", "numba"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of merging many."""
    if request.param == "numba":
        pytest.importorskip("numba")
    monkeypatch.setattr(many, "PAYS", 0 if request.param == "numba" else 1 << 62)
    return request.param


def plainly(tokenizer: BytePair, word: bytes) -> str:
    return merge("".join(map(tokenizer._alphabet.__getitem__, word)), tokenizer._merges)


@given(words=st.lists(st.text("ab日本the ", min_size=1, max_size=60).map(str.encode), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_words_of_any_length_together(words: list[bytes], tokenizer: BytePair) -> None:
    table = pair_table(tokenizer._merges)
    wanted = [plainly(tokenizer, word) for word in words]
    for pays in (0, 1 << 62):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(many, "PAYS", pays)
            assert merge_many(words, tokenizer._alphabet, table) == wanted


def test_merges_in_an_order_that_nobody_learns(tokenizer: BytePair, road: str) -> None:
    """A file may list them in any order; then joining one pair can make one of lower rank."""
    chance = random.Random(3)
    for _ in range(20):
        mixed = list(tokenizer.merges)
        chance.shuffle(mixed)
        other = BytePair(tokenizer.vocabulary, mixed, tokenizer.special)
        words = ["".join(chance.choices("ab日本the", k=chance.randint(1, 40))).encode() for _ in range(50)]
        found = merge_many(words, other._alphabet, pair_table(other._merges))
        assert found == [plainly(other, word) for word in words]


def test_the_longest_words(tokenizer: BytePair, road: str) -> None:
    words = [b"a" * LONGEST, b"ab" * (LONGEST // 2), "日".encode() * (LONGEST // 3), b"x", b"b" * 127]
    found = merge_many(words, tokenizer._alphabet, pair_table(tokenizer._merges))
    assert found == [plainly(tokenizer, word) for word in words]


def test_every_pair_of_a_large_vocabulary_is_found(road: str) -> None:
    """Some want the same slot of the hash table, and one of them lies in the next free one."""
    pairs = [(bytes([left]), bytes([right])) for left in range(97, 123) for right in range(256)]
    vocabulary = {bytes([byte]): byte for byte in range(256)}
    vocabulary |= {left + right: 256 + rank for rank, (left, right) in enumerate(pairs)}
    other = BytePair(vocabulary, pairs, {})
    found = merge_many([left + right for left, right in pairs], other._alphabet, pair_table(other._merges))
    assert found == [chr(256 + rank) for rank in range(len(pairs))]


@pytest.mark.parametrize("count", [(1 << 21) - 1, 1 << 21])
def test_as_many_merges_as_32_bits_can_rank_and_one_more(count: int, tokenizer: BytePair, road: str) -> None:
    words = [b"the", b"other", "日本語".encode()]
    table = replace(pair_table(tokenizer._merges), never=count)
    assert merge_many(words, tokenizer._alphabet, table) == [plainly(tokenizer, word) for word in words]


def test_a_batch_is_its_texts_one_by_one(tokenizer: BytePair, road: str) -> None:
    chance = random.Random(4)
    texts = ["".join(chance.choices("ab日本 the、\n", k=chance.randint(0, 300))) for _ in range(100)]
    texts += ["", "\udc80 bytes \udcff", "a lone \ud800 surrogate", "x" * 500, TEXT * 50]
    one_by_one = [BytePair(tokenizer.vocabulary, tokenizer.merges).encode_ordinary(text) for text in texts]
    for text in texts[-2:]:  # long enough to be merged many at a time, too: compare with the pieces of the loop itself
        assert [chr(one) for one in tokenizer.encode_ordinary(text)] == [
            symbol for word in tokenizer.split(text) for symbol in plainly(tokenizer, word.encode())
        ]
    tokenizer.clear_cache()
    assert tokenizer.encode_batch(texts) == one_by_one


def test_a_full_cache_starts_anew(tokenizer: BytePair, road: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    texts = ["".join(chance.choices("ab日本 ", k=2 * MANY)) for _ in range(3)]
    wanted = [tokenizer.encode_ordinary(text) for text in texts]
    monkeypatch.setattr(type(tokenizer._words), "LIMIT", 700)
    tokenizer.clear_cache()
    for text, ids in zip(texts, wanted, strict=True):
        assert tokenizer.encode_ordinary(text) == ids


def test_special_tokens_of_a_batch_are_refused_as_ever(tokenizer: BytePair) -> None:
    from clearhead.errors import InputError

    name = next(iter(tokenizer.special))
    with pytest.raises(InputError, match="allow it with"):
        tokenizer.encode_batch(["plain", f"with {name}"])
    assert tokenizer.encode_batch([f"a{name}b", "c"], "all")[0][1] == tokenizer.special[name]


def test_numba_is_asked_only_when_it_pays(tokenizer: BytePair, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def uncompiled() -> object:
        asked.append(True)
        return compiled.merge_all

    monkeypatch.setattr(compiled, "compiled", uncompiled)
    monkeypatch.setattr(many, "_merged_bytes", 0)
    monkeypatch.setattr(many, "PAYS", 6)
    table = pair_table(tokenizer._merges)
    wanted = [plainly(tokenizer, b"abab")]
    assert merge_many([b"abab"], tokenizer._alphabet, table) == wanted
    assert not asked
    with np.errstate(over="ignore"):  # uncompiled, numpy warns of what hashing is made of
        assert merge_many([b"abab"], tokenizer._alphabet, table) == wanted
    assert asked


def test_machine_code_is_kept_for_the_next_process() -> None:
    pytest.importorskip("numba")
    assert compiled.compiled.__wrapped__().stats.cache_path  # type: ignore[attr-defined]


def test_the_compiled_loop_as_read() -> None:
    """In Python. Every pair that was learned is looked for in the table, also where another one lies in its slot."""
    tokenizer = train([TEXT * 3, "".join(random.Random(2).choices("ab日本 ", k=3000))], 500)
    words = [left + right for left, right in tokenizer.merges]
    table, data = pair_table(tokenizer._merges), np.frombuffer(b"".join(words), np.uint8)
    ids = np.array(list(map(ord, tokenizer._alphabet)), np.int32)[data]
    lengths = np.cumsum(list(map(len, words)))
    with np.errstate(over="ignore"):  # uncompiled, numpy warns of what hashing is made of
        ends = compiled.merge_all(ids, lengths, table.keys, table.ranks, table.made, table.shift)
    assert ends[-1] < lengths[-1]
    assert [list(map(chr, part)) for part in np.split(ids[: ends[-1]], ends[:-1])] == [
        list(plainly(tokenizer, word)) for word in words
    ]
