"""The merges learned are those that tokenizers learns, in the same order, and workers and blocks change nothing."""

import gzip
import io
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE

from clearhead.errors import InputError
from clearhead.tokenizer import SPECIAL, corpus, read_texts, train
from clearhead.tokenizer.corpus import count_words
from clearhead.tokenizer.huggingface import printable
from clearhead.tokenizer.learn import learn_merges
from clearhead.tokenizer.split import PATTERNS, Splitter
from tests.tokenizer.texts import texts


def peer_merges(
    texts: Iterable[str], vocab_size: int, special: list[str], pattern: str = "gpt2", rarest: int = 0
) -> list[list[str]]:
    peer = Tokenizer(BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    split = pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated")
    peer.pre_tokenizer = byte_level if pattern == "gpt2" else pre_tokenizers.Sequence([split, byte_level])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=rarest,
    )
    peer.train_from_iterator(texts, trainer)
    return json.loads(peer.to_str())["model"]["merges"]


def our_merges(texts: Iterable[str], vocab_size: int, special: list[str], pattern: str = "gpt2") -> list[list[str]]:
    trained = train(texts, vocab_size, special=special, pattern=pattern, workers=1)
    return json.loads(trained.to_json())["model"]["merges"]


def test_same_merges_on_multi30k(data: Path) -> None:
    lines = []
    for name in ("train.en.gz", "train.de.gz"):
        with gzip.open(data / "multi30k" / name, "rt", encoding="utf-8", newline="") as file:
            lines += list(file)
    ours = our_merges(lines, 10_000, list(SPECIAL))
    assert len(ours) == 10_000 - 256 - 4
    assert ours == peer_merges(lines, 10_000, list(SPECIAL))


def test_a_text_with_few_pairs_gives_as_many_tokens_as_occur_twice(stdlib: list[str]) -> None:
    few = stdlib[::100]
    found = train(few, 90_000, workers=1, at_most=True)
    assert 260 < found.size < 90_000
    assert json.loads(found.to_json())["model"]["merges"] == peer_merges(few, 90_000, list(SPECIAL), rarest=2)
    assert found.size < train(few, found.size + 50, workers=1).size, "others occur once"
    with pytest.raises(InputError, match="is the most it can give"):
        train(few, 90_000, workers=1)


def test_where_nothing_can_be_forked_workers_are_started_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "_CAN_FORK", False)
    assert list(corpus.in_order(len, [["ab"], ["c", "d"], ["e"]], workers=2)) == [(1, 2), (2, 2), (1, 1)]


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])  # a fifth of the files, or all
def test_same_merges_on_the_standard_library(step: int, stdlib: list[str]) -> None:
    ours = our_merges(stdlib[::step], 8_000, list(SPECIAL))
    assert len(ours) == 8_000 - 256 - 4
    assert ours == peer_merges(stdlib[::step], 8_000, list(SPECIAL))


@pytest.mark.parametrize("pattern", ["cl100k", "o200k"])
def test_same_merges_with_other_patterns(pattern: str, stdlib: list[str]) -> None:
    assert our_merges(stdlib[::50], 1_000, [], pattern) == peer_merges(stdlib[::50], 1_000, [], pattern)


@settings(max_examples=150)
@given(st.lists(st.text("aab ", min_size=1, max_size=30), min_size=1, max_size=6), st.integers(257, 300))
def test_same_merges_on_little_text_with_many_ties(texts: list[str], vocab_size: int) -> None:
    """Few letters make ties, runs and overlaps; where pairs run out both stop."""
    counts = Counter(word for text in texts for word in Splitter("gpt2")(text))
    ours = learn_merges(counts, vocab_size - 256)
    assert len({left + right for left, right in ours}) == len(ours)  # no token is learned twice
    peer = peer_merges(texts, vocab_size, [])
    assert [[printable(left), printable(right)] for left, right in ours] == peer


def test_workers_change_nothing(monkeypatch: pytest.MonkeyPatch, stdlib: list[str]) -> None:
    monkeypatch.setattr(corpus, "BLOCK", 1 << 14)  # many small batches
    some = stdlib[:60]
    alone, together = (count_words(some, "gpt2", workers) for workers in (1, 3))
    assert alone == together
    assert sum(map(len, alone.elements())) == sum(map(len, some))
    assert train(some, 600, workers=1).to_json() == train(some, 600, workers=2).to_json()


def test_a_worker_of_a_pool_may_learn_too(monkeypatch: pytest.MonkeyPatch, stdlib: list[str]) -> None:
    """Such a worker may not start processes of its own, so it counts alone, with the same result."""
    monkeypatch.setattr(corpus, "BLOCK", 1 << 14)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(count_words, (stdlib[:20], "gpt2", 2)) == count_words(stdlib[:20], "gpt2", 2)


def test_an_iterator_is_read_no_faster_than_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory must not grow with the corpus: with two workers at most a handful of batches wait."""
    monkeypatch.setattr(corpus, "BLOCK", 100)
    taken = counted = ahead = 0

    def source() -> Iterable[str]:
        nonlocal taken, ahead
        for number in range(100):
            taken += 100
            ahead = max(ahead, taken - counted)
            yield f"{number:>100}"

    def progress(characters: int) -> None:
        nonlocal counted
        counted += characters

    assert sum(count_words(source(), "gpt2", 2, progress).values()) == 200
    assert counted == 10_000
    assert ahead <= 700


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=150)
@given(text=st.one_of(texts, st.text("ab1 .\n\r\t'。漢\u0301", max_size=40)), block=st.integers(1, 12))
def test_a_file_in_blocks_has_the_words_of_the_whole_file(pattern: str, text: str, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "BLOCK", block)
        read, given = list(corpus.blocks(io.BytesIO(text.encode()))), list(corpus.parts(text))
    splitter = Splitter(pattern)
    for parts in (read, given):
        assert "".join(parts) == text
        assert [word for part in parts for word in splitter(part)] == splitter(text)


def test_blocks_do_get_cut_and_a_text_without_a_place_to_cut_is_cut_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "BLOCK", 10)
    monkeypatch.setattr(corpus, "LARGEST", 40)
    assert max(map(len, corpus.blocks(io.BytesIO(b"some words " * 30)))) < 30
    assert max(map(len, corpus.blocks(io.BytesIO("。".encode() * 400)))) < 60
    assert max(map(len, corpus.parts("some words " * 30))) < 30


def test_bytes_that_are_no_text_are_learned_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"\xff\xfe\xff\xfe caf\xe9 " * 5)
    trained = train(read_texts([path]), 260, special=[])
    assert (b"\xff", b"\xfe") in trained.merges
    assert trained.decode_bytes(trained.encode_bytes(path.read_bytes())) == path.read_bytes()


def test_standard_input_is_a_file_named_minus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("grün".encode()), encoding="ascii"))
    assert list(read_texts(["-"])) == ["grün"]


def test_a_learned_token_never_looks_like_a_special_one() -> None:
    trained = train(["hello hello hello hello there"], 263, special=["hello"])
    assert b"hello" not in trained.vocabulary
    assert trained.encode("hello", {"hello"}) == [trained.special["hello"]]
    assert len(trained.encode_ordinary("hello")) > 1


def test_progress_tells_both_stages() -> None:
    told = []
    train(["ab ab ab"], 258, special=[], workers=1, progress=lambda *news: told.append(news))
    assert told == [("reading", 8, None), ("merging", 1, 2), ("merging", 2, 2)]


def test_the_smallest_vocabulary_has_no_merges() -> None:
    assert train(["text text"], 260).merges == []


def test_what_cannot_be_learned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"259 is too small: 4 special tokens and 256 bytes need 260"):
        train(["text"], 259)
    with pytest.raises(InputError, match=r"1000 is too large.* after 4 merges no pair is left, so 264 is the most"):
        train(["text text"], 1000)
    with pytest.raises(InputError, match="'<s>' is given twice"):
        train(["text"], 300, special=["<s>", "<s>"])
    with pytest.raises(InputError, match="special token is empty"):
        train(["text"], 300, special=[""])
    with pytest.raises(InputError, match=r"the special token '<\\ud800>' has a lone surrogate"):
        train(["text"], 300, special=["<\ud800>"])
    with pytest.raises(InputError, match="texts is one string"):
        train("text", 300)
    with pytest.raises(InputError, match=r"cannot read .*absent: No such file"):
        train(read_texts([tmp_path / "absent"]), 300)
    with pytest.raises(InputError, match="it is a folder"):
        train(read_texts([tmp_path]), 300)
    with pytest.raises(InputError, match="/dev/zero: it is a device"):
        train(read_texts(["/dev/zero"]), 300)
