"""What a vocabulary is like on a text, counted by hand, and tokens as people can read them."""

import pytest

from clearhead.tokenizer import Characters, train
from clearhead.tokenizer.explain import explain, show, use


def test_use_counts_bytes_tokens_and_how_often_each_occurs() -> None:
    tokenizer = Characters("abcdé", special=("<s>", "</s>"))
    found = use(tokenizer, ["a" * 10, "b" * 9, "éé"])
    assert (found.bytes, found.tokens) == (23, 21)
    assert found.bytes_per_token == pytest.approx(23 / 21)
    assert found.unused == pytest.approx(2 / 5)  # c and d; special tokens are no part of the vocabulary
    assert found.rare == pytest.approx(4 / 5)  # all but a
    assert use(tokenizer, ["é"]).bytes_per_token == 2
    nothing = use(tokenizer, [])
    assert (nothing.bytes, nothing.tokens, nothing.bytes_per_token, nothing.unused, nothing.rare) == (0, 0, 0, 1, 1)


def test_tokens_are_shown_so_that_nothing_is_invisible() -> None:
    assert show(b" a\n\t\r") == "␣a⏎⇥␍"
    assert show("é".encode()) == "é"
    assert show("é".encode()[:1] + b"a ") == "<C3>a␣"
    assert show(b"\x00\x7f") == "<00><7F>"


def test_every_merge_of_a_word_is_shown_with_its_rank() -> None:
    tokenizer = train(["abab", "abab"], 258, special=[], workers=1)
    assert tokenizer.merges == [(b"a", b"b"), (b"ab", b"ab")]
    assert list(explain(tokenizer, "abab")) == [
        "abab   (bytes: 4, merges: 3)",
        "    rank   a b a b",
        "       0   [ab] a b",
        "       0   ab [ab]",
        "       1   [abab]",
        f"     ids   {tokenizer.encode_ordinary('abab')[0]}",
        "",
    ]
