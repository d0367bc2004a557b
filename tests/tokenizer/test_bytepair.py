"""GPT-2's vocabulary gives GPT-2's ids, whoever applies it; every text and any bytes come back whole."""

import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from clearhead.errors import InputError
from clearhead.tokenizer import BytePair, train
from clearhead.tokenizer.bytepair import WordCache
from tests.tokenizer.texts import texts


def test_the_47_cases_of_llama_cpp(data: Path, gpt2: BytePair) -> None:
    stem = data / "gpt2-bpe" / "ggml-vocab-gpt-2.gguf"
    cases = stem.with_suffix(".gguf.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    wanted = stem.with_suffix(".gguf.out").read_text(encoding="utf-8").split("\n")
    assert len(cases) == len(wanted) == 47
    for case, line in zip(cases, wanted, strict=True):
        assert gpt2.encode(case) == [int(number) for number in line.split()]
        assert gpt2.decode(gpt2.encode(case)) == case


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.long)])  # a tenth of the files, or all
def test_files_of_the_standard_library_against_tiktoken(
    step: int, stdlib: list[str], gpt2: BytePair, gpt2_tiktoken: tiktoken.Encoding
) -> None:
    for text in stdlib[::step]:
        ids = gpt2.encode_ordinary(text)
        assert ids == gpt2_tiktoken.encode_ordinary(text)
        assert gpt2.decode(ids) == text


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.long)])
def test_files_of_the_standard_library_against_tokenizers(
    step: int, stdlib: list[str], gpt2: BytePair, gpt2_tokenizers: Tokenizer
) -> None:
    for text in stdlib[::step]:
        assert gpt2.encode_ordinary(text) == gpt2_tokenizers.encode(text).ids


def against_both(
    batch: list[str], gpt2: BytePair, gpt2_tiktoken: tiktoken.Encoding, gpt2_tokenizers: Tokenizer
) -> None:
    for text, peer in zip(batch, gpt2_tokenizers.encode_batch_fast(batch), strict=True):
        ids = gpt2.encode_ordinary(text)
        assert ids == peer.ids
        assert ids == gpt2_tiktoken.encode_ordinary(text)
        assert gpt2.decode(ids) == text


@settings(max_examples=200)
@given(batch=st.lists(texts, min_size=10, max_size=10))
def test_random_texts_against_both(
    batch: list[str], gpt2: BytePair, gpt2_tiktoken: tiktoken.Encoding, gpt2_tokenizers: Tokenizer
) -> None:
    against_both(batch, gpt2, gpt2_tiktoken, gpt2_tokenizers)


@pytest.mark.long
@settings(max_examples=2_000)
@given(batch=st.lists(texts, min_size=10, max_size=10))
def test_twenty_thousand_random_texts_against_both(
    batch: list[str], gpt2: BytePair, gpt2_tiktoken: tiktoken.Encoding, gpt2_tokenizers: Tokenizer
) -> None:
    against_both(batch, gpt2, gpt2_tiktoken, gpt2_tokenizers)


# Half characters, alone, in pairs and the wrong way round; those that stand for bytes have a test of their own.
surrogates = st.lists(
    st.sampled_from(
        ["\ud800", "\udbff", "\udc00", "\udc7f", "\udd00", "\udfff", "\ud83d\ude00", "\ud83d\udc80", "a", " ", "é"]
    )
).map("".join)


@given(text=surrogates)
def test_surrogates_become_what_tiktoken_makes_of_them(
    text: str, gpt2: BytePair, gpt2_tiktoken: tiktoken.Encoding
) -> None:
    ids = gpt2.encode(text)
    assert ids == gpt2_tiktoken.encode(text)
    assert gpt2.decode(ids) == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@given(data=st.binary(max_size=40))
def test_any_bytes_come_back(data: bytes, gpt2: BytePair) -> None:
    assert gpt2.decode_bytes(gpt2.encode_bytes(data)) == data
    escaped = data.decode("utf-8", "surrogateescape")
    assert gpt2.decode(gpt2.encode(escaped), errors="surrogateescape") == escaped
    assert gpt2.decode(gpt2.encode_bytes(data)) == data.decode("utf-8", "replace")


@given(data=st.binary(max_size=40))
def test_a_stream_never_shows_half_a_character(data: bytes, gpt2: BytePair) -> None:
    ids = gpt2.encode_bytes(data)
    stream = gpt2.decoder()
    parts = [*map(stream.push, ids), stream.finish()]
    assert "".join(parts) == gpt2.decode(ids)


def test_a_stream_waits_for_the_rest_of_a_character(gpt2: BytePair) -> None:
    stream = gpt2.decoder()
    ids = gpt2.encode_word("🙂".encode())
    assert len(ids) > 1
    assert [stream.push(number) for number in ids] == [*[""] * (len(ids) - 1), "🙂"]
    assert stream.push(ids[0]) == ""
    assert stream.finish() == "\ufffd"


@settings(max_examples=300)
@given(text=texts)
def test_offsets_are_those_of_tokenizers(text: str, gpt2: BytePair, gpt2_tokenizers: Tokenizer) -> None:
    peer = gpt2_tokenizers.encode(text)
    spans = gpt2.encode_with_offsets(text)
    assert [number for number, _, _ in spans] == gpt2.encode_ordinary(text)
    assert [(start, end) for _, start, end in spans] == peer.offsets


def test_offsets_of_a_lone_surrogate_are_refused(gpt2: BytePair) -> None:
    with pytest.raises(InputError, match="lone surrogate near character 2"):
        gpt2.encode_with_offsets("ab\ud800")


def test_special_tokens_must_be_allowed(gpt2: BytePair, gpt2_tiktoken: tiktoken.Encoding) -> None:
    text = "one<|endoftext|>two <|endoftext|>"
    with pytest.raises(InputError, match=r"special token '<\|endoftext\|>' at character 3"):
        gpt2.encode(text)
    with pytest.raises(InputError, match="special token"):
        gpt2.encode_batch(["fine", text])
    for allowed in ("all", {"<|endoftext|>"}, ["<|endoftext|>"]):
        assert gpt2.encode(text, allowed) == gpt2_tiktoken.encode(text, allowed_special="all")
    assert gpt2.encode_ordinary(text) == gpt2_tiktoken.encode_ordinary(text)
    assert gpt2.decode(gpt2.encode(text, "all")) == gpt2.decode(gpt2.encode_ordinary(text)) == text


def test_only_the_special_tokens_that_are_allowed() -> None:
    tokenizer = train(["a b"], 263, special=["<a>", "<a>b", "</s>", "<pad>", "<s>", "<unk>"])
    assert [tokenizer.decode([number]) for number in tokenizer.encode("<a>b<a>", "all")] == ["<a>b", "<a>"]  # longest
    with pytest.raises(InputError, match="'<a>b' at character 0"):
        tokenizer.encode("<a>b", {"<a>"})
    known = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)
    assert known == tuple(tokenizer.special[name] for name in ("<pad>", "<s>", "</s>", "<unk>"))
    assert train(["a b"], 257, special=[]).pad_id is None


def test_end_of_text_is_gpt2s_end_of_sequence(gpt2: BytePair) -> None:
    assert gpt2.eos_id == 50256
    assert gpt2.size == 50257


def test_dropout_is_repeatable_and_loses_nothing(gpt2: BytePair) -> None:
    text = "Unbelievable, naïve 日本語! " + "x" * 1000 + "\ud800"
    cuts = [gpt2.encode(text, dropout=0.2, generator=random.Random(seed)) for seed in (1, 1, 2)]
    assert cuts[0] == cuts[1] != cuts[2]
    assert {gpt2.decode(cut) for cut in cuts} == {text.replace("\ud800", "\ufffd")}
    assert gpt2.encode(text, dropout=0.0) == gpt2.encode(text)
    assert gpt2.encode("abc def", dropout=1.0, generator=random.Random(0)) == [
        number for byte in b"abc def" for number in gpt2.encode_word(bytes([byte]))
    ]
    with pytest.raises(InputError, match=r"needs generator=random.Random\(seed\)"):
        gpt2.encode(text, dropout=0.1)
    with pytest.raises(InputError, match=r"dropout is 1.5"):
        gpt2.encode(text, dropout=1.5, generator=random.Random(0))


def test_the_cache_is_bounded_and_threads_may_share_it(gpt2: BytePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WordCache, "LIMIT", 50)
    gpt2.clear_cache()
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefgh", k=chance.randint(1, 9))) for _ in range(500)]
    lines = [" ".join(chance.choices(words, k=200)) for _ in range(40)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(gpt2.encode, lines))
    assert len(gpt2._words) <= 50
    gpt2.clear_cache()
    monkeypatch.undo()
    assert together == [gpt2.encode(line) for line in lines]
    long = "x" * 5000
    gpt2.encode(long)
    assert long not in gpt2._words


def test_ids_that_nobody_has_are_refused(gpt2: BytePair) -> None:
    for wrong in (50257, -1):
        with pytest.raises(InputError, match=f"no token has the id {wrong}; the vocabulary has 50257 ids"):
            gpt2.decode([0, wrong])
        with pytest.raises(InputError, match=f"no token has the id {wrong}"):
            gpt2.decoder().push(wrong)


BYTES = {bytes([byte]): byte for byte in range(256)}


@pytest.mark.parametrize(
    ("vocabulary", "merges", "special", "message"),
    [
        (
            {token: number for token, number in BYTES.items() if number != 0x41},
            [],
            {},
            "lacks 1 of the 256 bytes, the first is 0x41",
        ),
        ({**BYTES, b"ab": 256}, [], {}, "no merges, but the vocabulary has 257 tokens"),
        ({**BYTES, b"ab": 256}, [(b"a", b"b"), (b"a", b"b")], {}, "merge 1 joins b'a' and b'b', and so does merge 0"),
        ({**BYTES, b"ab": 256}, [(b"a", b"c")], {}, "b'ac' is not in the vocabulary"),
        ({**BYTES, b"abc": 256}, [(b"ab", b"c")], {}, "b'ab' is not in the vocabulary"),
        ({**BYTES, b"ab": 97}, [(b"a", b"b")], {}, "id 97 stands for two tokens, b'a' and b'ab'"),
        (BYTES, [], {"<s>": 5}, "id 5 stands for two tokens"),
        (BYTES, [], {"<s>": 0x110000}, "ids go from 0 to 1114111"),
        (BYTES, [], {"": 300}, "special token is empty"),
    ],
)
def test_a_vocabulary_that_cannot_work_is_refused(
    vocabulary: dict[bytes, int], merges: list[tuple[bytes, bytes]], special: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        BytePair(vocabulary, merges, special)


def test_ids_may_lie_anywhere() -> None:
    """Among the surrogates of Unicode, beyond its planes' noncharacters: a symbol is only ever a number."""
    places = [*range(0xD7F0, 0xD8F0)]
    vocabulary = {bytes([byte]): place for byte, place in enumerate(places)}
    vocabulary |= {b"ab": 0xFFFE, b"abc": 0xFFFF, b"abcd": 0x10FFFF}
    merges = [(b"a", b"b"), (b"ab", b"c"), (b"abc", b"d")]
    tokenizer = BytePair(vocabulary, merges, {"<s>": 0})
    assert tokenizer.encode("abcd abc ab") == [0x10FFFF, places[32], 0xFFFF, places[32], 0xFFFE]
    assert tokenizer.decode(tokenizer.encode("<s>abcd", "all")) == "<s>abcd"
    assert tokenizer.size == 0x110000


def test_whole_words_come_before_merges() -> None:
    """As `ignore_merges` of tokenizers: a token that the merges cannot make is still found as a whole word."""
    vocabulary = {**BYTES, b"bc": 256, b"ab": 257, b"abc": 258}
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    assert BytePair(vocabulary, merges).encode("abc") == [97, 256]
    assert BytePair(vocabulary, merges, whole_words=True).encode("abc") == [258]
    assert BytePair(vocabulary, merges, whole_words=True).encode("abcd") == [97, 256, 100]
