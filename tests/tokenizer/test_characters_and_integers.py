"""Characters and integers behave as byte-pair encoding does wherever a caller can tell."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.tokenizer import SPECIAL, Characters, Integers, Tokenizer, load, train

EVERY_KIND = [Characters("abc é"), Integers(12), train(["abc abc"], 262)]
TEXTS = ["abc", "7 11 0", "abc <s>"]


@pytest.mark.parametrize(("tokenizer", "text"), list(zip(EVERY_KIND, TEXTS, strict=True)))
def test_one_interface(tokenizer: Tokenizer, text: str, tmp_path: Path) -> None:
    ids = tokenizer.encode(text, "all")
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert max(ids) < tokenizer.size
    assert tokenizer.encode_batch([text, ""], "all") == [ids, []]
    stream = tokenizer.decoder()
    assert "".join([*map(stream.push, ids), stream.finish()]) == text
    for number, name in zip(
        (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id), SPECIAL, strict=True
    ):
        assert number is not None
        assert tokenizer.decode([number]) == name
    with pytest.raises(InputError, match="the special token '</s>' at character 0"):
        tokenizer.encode("</s>")
    assert tokenizer.encode("</s>", {"</s>"}) == [tokenizer.eos_id]
    with pytest.raises(InputError, match=f"no token has the id {tokenizer.size}"):
        tokenizer.decode([tokenizer.size])
    with pytest.raises(InputError, match="no token has the id -1"):
        tokenizer.decode([-1])
    tokenizer.save(tmp_path)
    again = load(tmp_path)
    assert type(again) is type(tokenizer)
    assert again.to_json() == tokenizer.to_json()
    assert again.encode(text, "all") == ids


@given(st.text(max_size=30))
def test_characters_of_a_text_come_back(text: str) -> None:
    tokenizer = Characters.train([text], special=[])
    assert tokenizer.size == len(set(text))
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.integers(0, 99)))
def test_integers_come_back(numbers: list[int]) -> None:
    tokenizer = Integers(100, special=["<pad>"])
    text = " ".join(map(str, numbers))
    assert len(tokenizer.encode(text)) == len(numbers)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_an_unknown_character_is_unk_or_refused() -> None:
    tokenizer = Characters("ab", SPECIAL)
    assert [tokenizer.decode([number]) for number in tokenizer.encode("axb")] == ["a", "<unk>", "b"]
    with pytest.raises(InputError, match="the character 'x' is not in the vocabulary, and there is no <unk>"):
        Characters("ab", []).encode("axb")


@pytest.mark.parametrize("text", ["12", "-1", "x", "1.0", "²", "٣", "1_0", "+1"])
def test_what_is_no_integer_of_the_range_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an integer from 0 to 11"):
        Integers(12).encode(f"3 {text}")


def test_what_cannot_be_a_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match="'ab' has 2 characters"):
        Characters(["ab"])
    with pytest.raises(InputError, match="lone surrogate"):
        Characters(["\ud800"])
    with pytest.raises(InputError, match="given twice"):
        Characters("aba")
    with pytest.raises(InputError, match="at least 1 is wanted"):
        Integers(0)
    with pytest.raises(InputError, match="'<s>' is given twice"):
        Integers(3, ["<s>", "<s>"])


@pytest.mark.parametrize("tokenizer", EVERY_KIND[:2])
def test_there_are_no_merges_to_drop(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="this tokenizer has none"):
        tokenizer.encode("", dropout=0.1, generator=random.Random(0))
