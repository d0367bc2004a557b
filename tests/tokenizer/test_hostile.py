"""Tokenizer files that are broken or made to break something: refused with the file's name, in time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from clearhead.errors import InputError
from clearhead.tokenizer import Integers, load, split, train
from clearhead.tokenizer.split import CL100K, KNOWN, Splitter

DEEP: Any = json.loads("[" * 500 + "]" * 500)


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    """Set what stands at a path in a parsed tokenizer.json."""

    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return change


CHANGES = {
    "model is a list": put("model", value=[]),
    "vocab is a list": put("model", "vocab", value=[]),
    "an id is a string": put("model", "vocab", "a", value="7"),
    "an id is a float": put("model", "vocab", "a", value=7.0),
    "an id is null": put("model", "vocab", "a", value=None),
    "an id is negative": put("model", "vocab", "a", value=-1),
    "an id is true": put("model", "vocab", "a", value=True),
    "an id is huge": put("model", "vocab", "a", value=10**30),
    "merges is a string": put("model", "merges", value="a b"),
    "a merge is a number": put("model", "merges", 0, value=5),
    "a merge has numbers": put("model", "merges", 0, value=[1, 2]),
    "a merge is null": put("model", "merges", 0, value=None),
    "a merge has three": put("model", "merges", 0, value=["a", "b", "c"]),
    "a merge is deep": put("model", "merges", 0, value=DEEP),
    "added tokens are a table": put("added_tokens", value={"a": 1}),
    "an added token is a string": put("added_tokens", 0, value="<pad>"),
    "an added token has no content": put("added_tokens", 0, value={"id": 0, "special": True}),
    "an added token has no id": put("added_tokens", 0, value={"content": "<pad>", "special": True}),
    "an added token is a number": put("added_tokens", 0, "content", value=3),
    "an added token is empty": put("added_tokens", 0, "content", value=""),
    "an added token is half a character": put("added_tokens", 0, "content", value="\ud800"),
    "an added token's id is a list": put("added_tokens", 0, "id", value=[]),
    "pre_tokenizer is a string": put("pre_tokenizer", value="ByteLevel"),
    "pre_tokenizer is a number": put("pre_tokenizer", value=1),
    "pretokenizers is null": put("pre_tokenizer", value={"pretokenizers": None}),
    "pretokenizers has numbers": put("pre_tokenizer", value={"pretokenizers": [1, 2]}),
    "post_processor is a list": put("post_processor", value=[1]),
}


def with_pattern(pattern: Any) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "use_regex": False}]}


PATTERNS = {"a number": 7, "a list": ["a"], "a bracket": "(", "too deep": "(" * 5000, "too long": "a|" * 10_000}


@pytest.fixture(scope="module")
def whole() -> str:
    return train(["the cat sat on the mat and the dog sat on the cat " * 20], 275, workers=1).to_json()


@pytest.mark.parametrize("what", CHANGES)
def test_hostile_values_are_refused_with_the_file(what: str, whole: str, tmp_path: Path) -> None:
    content = json.loads(whole)
    CHANGES[what](content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"tokenizer\.json") as refused:
        load(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("what", PATTERNS)
def test_hostile_patterns_are_refused_with_the_file(what: str, whole: str, tmp_path: Path) -> None:
    content = {**json.loads(whole), "pre_tokenizer": with_pattern(PATTERNS[what])}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {"clearhead": "characters", "special": [], "characters": "abc" * 2},
        {"clearhead": "characters", "special": [], "characters": [1, 2]},
        {"clearhead": "characters", "special": "ab", "characters": ["a"]},
        {"clearhead": "characters", "special": [None], "characters": ["a"]},
        {"clearhead": "characters", "special": []},
        {"clearhead": "integers", "special": [], "count": "9"},
        {"clearhead": "integers", "special": [], "count": 1.5},
        {"clearhead": "integers", "special": [], "count": 10**20},
        {"clearhead": "integers", "special": {}, "count": 3},
        {"clearhead": "integers", "special": ["<pa$>", "<s>", "</s>", "<unk>"], "count": 3},
        {"clearhead": ["integers"], "special": [], "count": 3},
    ],
)
def test_hostile_simple_tokenizers_are_refused_with_the_file(content: Any, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        load(tmp_path)


def test_gpt2_files_want_whole_numbers(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": "0"}')
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(InputError, match=r"vocab\.json: the id of 'a' is '0'"):
        load(tmp_path)


@pytest.mark.parametrize("number", ["0", 1.0, True, None, -1, 1 << 24])
def test_pieces_that_are_numbered_anew_want_whole_numbers(number: Any, tmp_path: Path) -> None:
    """As a run keeps Marian's: a tokenizer of `tokenizers`, and a vocabulary that counts otherwise than it does."""
    whole = json.loads(Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a")).to_str())
    wrapped = {"clearhead": "tokenizers", "vocabulary": {"a": 5, "b": number}, "tokenizer": whole}
    (tmp_path / "tokenizer.json").write_text(json.dumps(wrapped))
    with pytest.raises(
        InputError, match=rf"tokenizer\.json: the id of 'b' is {number!r}, and a whole number is wanted"
    ):
        load(tmp_path)
    wrapped["vocabulary"] = {"a": 5, "b": (1 << 24) - 1}
    (tmp_path / "tokenizer.json").write_text(json.dumps(wrapped))
    assert load(tmp_path).encode("b") == [(1 << 24) - 1]


@pytest.mark.parametrize("pattern", ["(?:a|a)*b", "(?:a|aa)+c", "(?=(?:a|a)*b)a"])
def test_a_pattern_that_never_ends_is_given_up(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "PATIENCE", 0.2)
    cut = Splitter(pattern)
    with pytest.raises(InputError, match="is not done with 43 characters after 0 seconds"):
        cut("a" * 40 + "dbc")


def test_a_pattern_that_only_re_never_ends_with_is_no_matter() -> None:
    assert Splitter("(a+)+b")("a" * 40 + "db") == ["a" * 40 + "db"]


def test_an_unknown_pattern_cuts_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "It's 2,024 naïve  日本語's\n\n\tx٣٤٥٦ 🎉🎉 \u2028end" * 3
    for known in KNOWN:
        assert Splitter(f"(?:{known})")(text) == Splitter(known)(text)  # the brackets make it one that is not known
    assert f"(?:{CL100K})" not in KNOWN


def test_integers_of_any_length() -> None:
    tokenizer = Integers(20)
    assert tokenizer.encode_ordinary("0" * 5000 + "7 19") == tokenizer.encode_ordinary("7 19")
    with pytest.raises(InputError, match=r"'9{40}…' is not an integer from 0 to 19"):
        tokenizer.encode_ordinary("9" * 5000)
