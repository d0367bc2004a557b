"""A tokenizer survives every format that can hold it, means the same to its peers, and is refused by the others."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken_ext.openai_public as openai
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tokenizers import Tokenizer as Peer

from clearhead.errors import InputError
from clearhead.tokenizer import BytePair, Characters, Tokenizer, load, train
from clearhead.tokenizer.formats import save, tiktoken_lines
from clearhead.tokenizer.split import PATTERNS
from tests.tokenizer.texts import texts

SAMPLE = ["unbelievable, isn't it? I can't, we'll see 12345 times… naïve Grüße 日本語 camelCase\n\n  x = f(y)\n"] * 3


def same(one: Tokenizer, other: Tokenizer) -> None:
    assert isinstance(one, BytePair)
    assert isinstance(other, BytePair)
    for name in ("vocabulary", "merges", "special", "pattern", "whole_words", "size"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.fixture(scope="module", params=PATTERNS)
def trained(request: pytest.FixtureRequest, stdlib: list[str]) -> BytePair:
    return train([*stdlib[::200], *SAMPLE], 1_500, pattern=request.param, workers=1)


def official(pattern: str) -> str:
    """OpenAI's own way of writing the pattern, which differs from ours."""
    if pattern == PATTERNS["gpt2"]:
        return openai.r50k_pat_str
    source = openai.cl100k_base if pattern == PATTERNS["cl100k"] else openai.o200k_base
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai, "load_tiktoken_bpe", lambda *_, **__: {})  # the vocabulary would be downloaded
        return source()["pat_str"]


@pytest.mark.parametrize("merges_as_text", [False, True])
def test_tokenizers_reads_what_we_write_and_we_read_what_it_writes(
    trained: BytePair, merges_as_text: bool, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    save(trained, ours, merges_as_text)
    assert isinstance(json.loads(ours.read_bytes())["model"]["merges"][0], str) == merges_as_text
    peer = Peer.from_file(str(ours))
    peer.save(str(theirs))
    same(load(ours), trained)
    same(load(theirs), trained)
    if not merges_as_text:  # which it no longer writes itself
        assert json.loads(ours.read_bytes()) == json.loads(theirs.read_bytes()), "not as it writes the same"
    assert peer.get_vocab_size() == trained.size
    for text in SAMPLE:
        assert peer.encode(text).ids == trained.encode(text)
        assert peer.decode(trained.encode(text)) == text
    assert peer.encode("<s>a</s>").ids == trained.encode("<s>a</s>", "all")


def test_tiktoken_reads_what_we_write(trained: BytePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # else it remembers the file by its path, which another run may share
    path = tmp_path / "mine.tiktoken"
    save(trained, path)
    same(load(path, pattern=trained.pattern, special=trained.special), trained)
    ranks = load_tiktoken_bpe(str(path))
    assert ranks == trained.vocabulary
    peers = [
        tiktoken.Encoding("mine", pat_str=pattern, mergeable_ranks=ranks, special_tokens=trained.special)
        for pattern in (trained.pattern, official(trained.pattern))
    ]

    @settings(max_examples=200)
    @given(text=texts)
    def check(text: str) -> None:
        for peer in peers:
            assert peer.encode_ordinary(text) == trained.encode_ordinary(text)

    check()
    assert peers[0].encode("<s>a</s>", allowed_special="all") == trained.encode("<s>a</s>", "all")


@settings(max_examples=150)
@given(
    st.lists(st.text("aab", min_size=1, max_size=40), min_size=1, max_size=5),
    st.integers(1, 40),
    st.lists(st.text("aab", max_size=60), min_size=5, max_size=5),
)
def test_what_is_learned_means_the_same_to_tiktoken(learn: list[str], tokens: int, tried: list[str]) -> None:
    """tiktoken joins by what two tokens spell, we by the pair; on runs and overlaps, too, they must agree."""
    try:
        trained = train(learn, 256 + tokens, special=[])
    except InputError:  # the text has fewer pairs than that
        return
    tiktoken_lines(trained)
    peer = tiktoken.Encoding("x", pat_str=r"\S+", mergeable_ranks=trained.vocabulary, special_tokens={})
    for text in tried:
        assert peer.encode_ordinary(text) == trained.encode_word(text.encode())


def test_gpt2_survives_every_format(gpt2: BytePair, tmp_path: Path) -> None:
    save(gpt2, tmp_path / "gpt2.json")
    same(load(tmp_path / "gpt2.json"), gpt2)
    save(gpt2, f"{tmp_path}/folder/")
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"vocab.json", "merges.txt"}
    same(load(tmp_path / "folder"), gpt2)
    same(load(tmp_path / "folder" / "merges.txt"), gpt2)
    save(gpt2, tmp_path / "encoder.json")
    assert (tmp_path / "vocab.bpe").exists()
    same(load(tmp_path / "encoder.json"), gpt2)
    save(gpt2, tmp_path / "gpt2.tiktoken")
    same(load(tmp_path / "gpt2.tiktoken", pattern="gpt2", special=gpt2.special), gpt2)


def test_the_files_of_openai_are_read_and_written_alike(gpt2: BytePair, data: Path, tmp_path: Path) -> None:
    save(gpt2, tmp_path / "encoder.json")
    original = data / "gpt2-bpe"
    assert json.loads((tmp_path / "encoder.json").read_bytes()) == json.loads((original / "encoder.json").read_bytes())
    assert (tmp_path / "vocab.bpe").read_bytes() == (original / "vocab.bpe").read_bytes()


def test_saving_leaves_nothing_half_written(gpt2: BytePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "tokenizer.json"
    target.write_text("what was there before")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*tokenizer.json: No space left on device"):
        gpt2.save(target)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    assert target.read_text() == "what was there before"


BYTES = {bytes([byte]): byte for byte in range(256)}


@pytest.mark.parametrize(
    ("tokenizer", "name", "message"),
    [
        (BytePair(BYTES, [], pattern="cl100k"), "folder/", "imply GPT-2's pattern"),
        (BytePair(BYTES, [], whole_words=True), "folder/", "whole words come before merges"),
        (
            BytePair({**BYTES, b"ab": 256, b"xyz": 257}, [(b"a", b"b")]),
            "folder/",
            "b'xyz', which no merge makes, would be a special token",
        ),
        (
            BytePair({**BYTES, b"ab": 256, b"xy": 257}, [(b"a", b"b")]),
            "folder/",
            "b'xy', which no merge makes, would be a special token",
        ),
        (
            BytePair(
                {**BYTES, b"ab": 256, b"bc": 257, b"abc": 258},
                [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")],
            ),
            "x.tiktoken",
            "two merges make the token b'abc'",
        ),
        (
            BytePair({**BYTES, b"ab": 257, b"cd": 256}, [(b"a", b"b"), (b"c", b"d")]),
            "x.tiktoken",
            "id 256, b'cd', comes after id 257",
        ),
        (
            BytePair({**BYTES, b"bc": 256, b"ab": 257, b"abc": 258}, [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]),
            "x.tiktoken",
            "tiktoken would encode b'abc' as [258], while the merges make [97, 256]",
        ),
        (BytePair({**BYTES, b"ab": 256}, [(b"a", b"b")], {"ab": 300}), "x.json", "the special token 'ab' from the"),
        (Characters("abc"), "x.tiktoken", "only a byte-pair encoding can be written there; Characters cannot"),
        (Characters("abc"), "folder/", "only a byte-pair encoding"),
    ],
)
def test_what_a_format_cannot_express_is_refused(tokenizer: Tokenizer, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        save(tokenizer, f"{tmp_path}/{name}")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def content() -> dict[str, Any]:
    return json.loads(train(["ab ab cd cd"], 264).to_json())


def at(content: dict[str, Any], *keys: Any) -> Any:
    for key in keys:
        content = content[key]
    return content


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["model"], None, "'model' is NoneType, and a dict is wanted"),
        (["model", "type"], "WordPiece", "model.type is 'WordPiece'"),
        (["model", "byte_fallback"], True, "model.byte_fallback is True"),
        (["model", "fuse_unk"], True, "model.fuse_unk is True"),
        (["model", "dropout"], 0.1, "model.dropout is 0.1"),
        (["model", "continuing_subword_prefix"], "##", "model.continuing_subword_prefix is '##'"),
        (["model", "end_of_word_suffix"], "</w>", "model.end_of_word_suffix is '</w>'"),
        (["model", "merges"], [], "there are no merges"),
        (["model", "merges", 1], ["a", "b"], "merge 1 joins b'a' and b'b', and so does merge 0"),
        (["model", "merges", 1], ["x", "y"], "merge 1 joins b'x' and b'y', but b'xy' is not in the vocabulary"),
        (["model", "merges", 1], "a b c", "merge 1 is 'a b c', and two tokens are wanted"),
        (["model", "vocab", "日"], 999, "the token '日' has the character '日', which stands for no byte"),
        (["model", "vocab", "!"], 5, "the id 5 stands for two tokens"),
        (["normalizer"], {"type": "NFC"}, "it has a normalizer"),
        (["pre_tokenizer"], None, "pre_tokenizer is [None]"),
        (["pre_tokenizer", "add_prefix_space"], True, "add_prefix_space is true"),
        (["pre_tokenizer", "use_regex"], False, "there is no pattern"),
        (["pre_tokenizer", "type"], "Whitespace", "pre_tokenizer is ['Whitespace']"),
        (["truncation"], {"max_length": 4}, "truncation is {'max_length': 4}"),
        (["padding"], {"pad_id": 0}, "padding is {'pad_id': 0}"),
        (["decoder"], None, "decoder is [None]; only ['ByteLevel'] can be read"),
        (["decoder"], {"type": "Metaspace"}, "decoder is ['Metaspace']"),
        (["surprise"], 1, "the key 'surprise' is not one of version, truncation"),
        (["added_tokens", 0, "id"], 999, "'<pad>' has the id 999, but tokenizers gives it 0"),
        (["added_tokens", 0, "lstrip"], True, "'<pad>' has lstrip"),
        (["added_tokens", 0, "special"], False, "'<pad>' is not special"),
    ],
)
def test_a_tokenizer_json_we_cannot_follow_is_refused(
    content: dict[str, Any], keys: list[Any], value: Any, message: str, tmp_path: Path
) -> None:
    at(content, *keys[:-1])[keys[-1]] = value
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_special_tokens_are_written_in_the_order_of_their_ids() -> None:
    tokenizer = train(["ab ab"], 261, special=["<s>", "</s>", "<a>"])
    assert tokenizer.to_json().startswith('{\n "version": "1.0",\n')  # a line for each entry, for people and for diffs
    assert [(one["content"], one["id"]) for one in json.loads(tokenizer.to_json())["added_tokens"]] == [
        ("<s>", 0),
        ("</s>", 1),
        ("<a>", 2),
    ]


def test_a_missing_byte_is_named(content: dict[str, Any], tmp_path: Path) -> None:
    del content["model"]["vocab"]["A"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="lacks 1 of the 256 bytes, the first is 0x41"):
        load(tmp_path)


def test_a_pattern_that_others_may_read_differently_is_kept_and_said_so(tmp_path: Path) -> None:
    trained = train(["ab ab cd cd"], 262, pattern=r"\w+|\W+")
    with pytest.warns(UserWarning, match="tokenizers may cut differently"):
        trained.save(tmp_path / "tokenizer.json")
    same(load(tmp_path), trained)
    # theirs means what their engine makes of it
    theirs = json.loads((tmp_path / "tokenizer.json").read_text())
    del theirs["pre_tokenizer"]["pretokenizers"][0]["engine"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(theirs))
    with pytest.raises(InputError, match=r"the pattern '.*' uses what means something else here than in tokenizers"):
        load(tmp_path)


def test_ignore_merges_is_whole_words(content: dict[str, Any], tmp_path: Path) -> None:
    content["model"]["ignore_merges"] = True
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    ours = load(path)
    assert isinstance(ours, BytePair)
    assert ours.whole_words
    assert ours.encode(" ab cd ef") == Peer.from_file(str(path)).encode(" ab cd ef").ids


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.tiktoken", "IQ== 0\nIQ==\n", "line 2: b'IQ==' is not a token in base64 and a rank"),
        ("x.tiktoken", "I! 0\n", "line 1: b'I! 0' is not a token in base64"),
        ("x.tiktoken", "IQ== 0\nIQ== 1\n", "line 2: the token b'!' is there twice"),
        ("x.tiktoken", "IQ== 0\n", "lacks 255 of the 256 bytes"),
        ("x.json", "{", "is not JSON"),
        ("x.json", "[]", "an object is wanted, not a list"),
        ("x.json", '{"clearhead": "words"}', "'clearhead' is 'words'"),
        ("x.json", '{"clearhead": "characters"}', "the key 'characters' is missing"),
    ],
)
def test_broken_files_are_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        load(tmp_path / name, pattern="gpt2" if name.endswith("tiktoken") else None)


def test_a_tiktoken_vocabulary_that_merges_cannot_make_is_refused(tmp_path: Path) -> None:
    lines = tiktoken_lines(BytePair(BYTES, [])) + b"YWJj 256\n"  # abc, without ab or bc
    (tmp_path / "x.tiktoken").write_bytes(lines)
    with pytest.raises(InputError, match=r"b'abc' \(rank 256\) is not the merge of two tokens before it"):
        load(tmp_path / "x.tiktoken", pattern="gpt2")


def test_gpt2_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save(train(["ab ab cd cd"], 264), f"{tmp_path}/")
    merges = tmp_path / "merges.txt"
    good = merges.read_text()
    for line, message in (("a", "is not two tokens"), ("a b c", "is not two tokens"), ("Q Z", "b'QZ' is not in the")):
        merges.write_text(good + line + "\n")
        with pytest.raises(InputError, match=message):
            load(tmp_path)
    merges.write_text("#version: 0.2\n")
    with pytest.raises(InputError, match="there are no merges"):
        load(tmp_path)
    merges.unlink()
    with pytest.raises(InputError, match=r"cannot read .*merges.txt: No such file"):
        load(tmp_path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no tokenizer: none of tokenizer.json, vocab.json, encoder.json"):
        load(tmp_path)
    with pytest.raises(InputError, match=r"cannot read .*absent.json: No such file"):
        load(tmp_path / "absent.json")
    small = BytePair(BYTES, [])
    save(small, tmp_path / "x.tiktoken")
    with pytest.raises(InputError, match="does not say its pattern"):
        load(tmp_path / "x.tiktoken")
    save(small, tmp_path / "tokenizer.json")
    with pytest.raises(InputError, match=r"they are given only for a .tiktoken file"):
        load(tmp_path / "tokenizer.json", pattern="gpt2")
