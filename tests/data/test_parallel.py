"""Parallel text: read exactly, skipped or refused as documented, never misaligned; and batches with little padding."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.data import IGNORE, DataSettings, Splits, TokenizerSettings, build
from clearhead.data.files import anchor, expand
from clearhead.data.pairs import Pairs
from clearhead.data.parallel import hold_out
from clearhead.errors import InputError
from clearhead.settings import from_dict, to_dict
from clearhead.tokenizer import SPECIAL, Characters
from clearhead.training.config import load_recipe

LETTERS = Characters([chr(code) for code in range(32, 383)])

Write = Callable[[str, str | bytes], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def two_files(write: Write, source: str | bytes, target: str | bytes, **changes: Any) -> Splits:
    good = "one\ntwo\n"
    files = {
        "source": write("train.en", source),
        "target": write("train.de", target),
        "validation_source": write("val.en", good),
        "validation_target": write("val.de", good),
    }
    return build(DataSettings(**{**files, **changes}), LETTERS)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lines_end_at_newlines_only(write: Write, pack: Callable[[bytes], bytes]) -> None:
    """U+2028, U+0085, form feed and a lone carriage return are inside a sentence; a BOM and \\r\\n are not."""
    source = "\ufeffa\u2028b\r\nc\x0cd\nle\rf\u0085"
    splits = two_files(write, pack(source.encode()), pack(b"x\ny\nz\n"))
    assert splits.train.examples() == [("a\u2028b", "x"), ("c\x0cd", "y"), ("le\rf", "z")]
    assert splits.train.skipped == []


def test_what_cannot_be_used_is_skipped_on_both_sides(write: Write) -> None:
    source = [b"a%d" % i for i in range(30)]
    target = [b"b%d" % i for i in range(30)]
    source[3] = b""
    target[7] = b"   "
    source[8] = target[8] = b"\t"
    target[9] = b"caf\xe9"
    source[20] = b"x" * 40
    splits = two_files(write, b"\n".join(source) + b"\n", b"\n".join(target), max_length=40)
    kept = [i for i in range(30) if i not in (3, 7, 8, 9)]
    assert splits.train.examples() == [(f"a{i}" if i != 20 else "x" * 40, f"b{i}") for i in kept]
    assert len(splits.train) == 25
    assert splits.train.name(20) == f"{write('train.en', source[0])} and {write('train.de', target[0])}, line 26"
    found = {s.reason: (s.count, s.first.rpartition("/")[2]) for s in splits.train.skipped}
    assert found == {
        "empty on one side": (2, "train.en, line 4"),
        "empty on both sides": (1, "train.en, line 9"),
        "not UTF-8": (1, "train.de, line 10"),
        "longer than data.max_length = 40 tokens": (1, "train.de, line 21: 41 tokens"),
    }
    assert [name for name, _ in splits.skipped()] == ["train"] * 4
    batch = splits.train.collate(range(25))
    rows = [LETTERS.decode(row[row >= 4].tolist()) for row in batch.inputs["source"]]
    assert rows == [f"a{i}" for i in kept if i != 20]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "a\nb\n", r"train.en has 3 lines, but .*train.de has 2"),
        ("a\nb\n", "a\n\nb\n", r"train.en has 2 lines, but .*train.de has 3"),
        ("", "a\n", r"train.en: the file is empty"),
        ("\n\n", "\n\n", r"no line can be used; 2 empty on both sides"),
        ("a\n", gzip.compress(b"abc" * 1000, mtime=0)[:-9], r"train.de: cannot read it"),
        ("a\nb\n", b"a\n\xff\n", r"train.de, line 2: not UTF-8: byte 0xFF at byte 1 \(1 of 2 lines are not\).*iconv"),
        ("a\nb\n", '{"de": "a"}\n{"de": "b"}\n', r"train.de: JSON lines, and text is wanted.*`jq -r \.de`"),
        ("abc\n", "a\n", r"no pair has at most data.max_length = 3 tokens; the shortest has 4"),
    ],
)
def test_training_files_that_are_refused(write: Write, source: str | bytes, target: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        two_files(write, source, target, max_length=3)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\n\nc\n", "a\nb\nc\n", "bad.en, line 2: empty, but its other side is not"),
        ("a\nb\nc\n", "a\nb\n \n", "bad.de, line 3: empty, but its other side is not"),
        ("a\n" * 99 + "b\n", b"a\n" * 99 + b"\xc3\n", "bad.de, line 100: not UTF-8: byte 0xC3 at byte 1"),
    ],
)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_validation_and_test_are_whole_or_refused(
    write: Write, split: str, source: str | bytes, target: str | bytes, message: str
) -> None:
    files = {f"{split}_source": write("bad.en", source), f"{split}_target": write("bad.de", target)}
    with pytest.raises(InputError, match=message):
        two_files(write, "a\n", "b\n", **files)


def test_long_test_lines_stay_in_the_examples(write: Write) -> None:
    files = {"test_source": write("t.en", "abcdef\nab\n"), "test_target": write("t.de", "a\nb\n")}
    test = two_files(write, "a\n", "b\n", max_length=4, **files).test
    assert test is not None
    assert test.examples() == [("abcdef", "a"), ("ab", "b")]
    assert len(test) == 1
    assert test.collate([0]).inputs["source"].tolist() == [[*LETTERS.encode("ab"), LETTERS.eos_id]]


def test_columns_that_nobody_reads_are_told(write: Write) -> None:
    settings = DataSettings(tsv=str(write("p.tsv", "a\tb\t1\tx\n" * 20)))
    said = [str(skipped) for _, skipped in build(settings, LETTERS).skipped()]
    assert len(said) == 1
    assert said[0].startswith("left out 2: columns of 4, of which two are read (first: ")
    settings = DataSettings(tsv=str(write("q.tsv", "a\tb\n" * 20)))
    assert not list(build(settings, LETTERS).skipped())


def test_columns(write: Write) -> None:
    content = "Go.\tGeh.\tCC-BY 1\n\nHi.\tHallo!\tCC-BY 2\nRun!\t\tCC-BY 3\nRun.\tLauf!\tCC-BY 4\n"
    splits = build(DataSettings(tsv=write("deu.txt", content), validation_tsv=write("v.tsv", "a\tb\n")), LETTERS)
    assert splits.train.examples() == [("Go.", "Geh."), ("Hi.", "Hallo!"), ("Run.", "Lauf!")]
    assert {s.reason: s.first.rpartition("/")[2] for s in splits.train.skipped} == {
        "empty on both sides": "deu.txt, line 2",
        "empty on one side": "deu.txt, line 4",
        "columns of 3, of which two are read": "deu.txt",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a b\n", "p.tsv, line 1: 1 columns; wanted at least 2"),
        ("a\tb\na\tb\tc\n", "p.tsv, line 2: 3 columns; wanted 2 like the lines before"),
        ("a\tb\nab\n", "p.tsv, line 2: 1 columns; wanted 2"),
    ],
)
def test_columns_that_are_refused(write: Write, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(DataSettings(tsv=write("p.tsv", content)), LETTERS)


def test_validation_is_held_out_where_none_is_named(write: Write) -> None:
    path = write("all.tsv", "".join(f"{i}\t{i}\n" for i in range(100)))
    splits = build(DataSettings(tsv=path, validation_share=0.2), LETTERS)
    held = [int(source) for source, _ in splits.validation.examples()]
    assert held == list(range(4, 100, 5))
    assert sorted(held + [int(source) for source, _ in splits.train.examples()]) == list(range(100))
    assert splits.validation.name(0).endswith("all.tsv, line 5")
    assert splits.test is None
    with pytest.raises(InputError, match="only 1 example"):
        list(hold_out([1], 0.5))
    for size in range(2, 40):
        found = list(hold_out(range(size), 0.1))
        assert sorted(index for _, index in found) == list(range(size))
        assert [index for part, index in found if part == "validation"] == (list(range(9, size, 10)) or [size - 1])


def test_what_a_file_had_to_skip_is_told_once(write: Write) -> None:
    path = write("all.tsv", "".join(f"{i}\t{i}\n" for i in range(30)) + "3\t\n")
    splits = build(DataSettings(tsv=path, validation_share=0.2), LETTERS)
    assert [one.count for one in splits.train.skipped] == [1]
    assert splits.validation.skipped == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {},
            "must be one of data.task, data.source and data.target, data.tsv, data.text or data.labelled; found none",
        ),
        ({"source": "a"}, "data.source is given, but data.target is not"),
        ({"source": "a", "target": "b", "test_target": "c"}, "data.test_target is given, but data.test_source is not"),
        ({"source": "a", "target": "b", "text": "c"}, "found data.source and data.text"),
        ({"task": "masked"}, "task = 'masked' needs data.text and nothing else to read; found none"),
        ({"task": "masked", "tsv": "a"}, "task = 'masked' needs data.text and nothing else to read; found data.tsv"),
        ({"task": "dates", "locales": "de"}, "data.locales must be a list, not 'de'"),
        ({"tsv": "a", "documents": "line"}, "data.documents means nothing for data given by 'tsv'"),
        ({"tsv": "a", "max_lenght": 3}, "unknown key 'data.max_lenght'; did you mean 'max_length'"),
        ({"tsv": "a", "validation_share": 1}, "between 0 and 1, not 1.0"),
        ({"task": "copi"}, "is not one of 'copy', 'reverse'"),
    ],
)
def test_settings_that_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_dict(DataSettings, values, "data.")


def test_settings_survive_a_round_trip() -> None:
    values = {"text": ["a.txt", "b/*.txt"], "documents": "file", "context": 64, "task": "masked"}
    settings = from_dict(DataSettings, values, "data.")
    assert settings.text == ("a.txt", "b/*.txt")
    assert from_dict(DataSettings, to_dict(settings)) == settings
    assert anchor(settings, Path("/x")).text == ("/x/a.txt", "/x/b/*.txt")


def test_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    assert expand("$CLEARHEAD_DATA/a") == tmp_path / "a" == expand("${CLEARHEAD_DATA}/a")
    assert (expand("$STDLIB") / "this.py").is_file()
    assert expand("~/x").is_absolute()
    with pytest.raises(InputError, match=r"\$NO_SUCH_THING is not set"):
        expand("$NO_SUCH_THING/a")
    with pytest.raises(InputError, match=r"~no-such-user/a: nobody knows whose home"):
        expand("~no-such-user/a")
    settings = DataSettings(source="a.en", target="~/a.de", test_source="/x", test_target="$CLEARHEAD_DATA/y")
    anchored = anchor(settings, tmp_path)
    assert (anchored.source, anchored.target) == (str(tmp_path / "a.en"), "~/a.de")
    assert (anchored.test_source, anchored.test_target) == ("/x", "$CLEARHEAD_DATA/y")
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(
        InputError, match=r"\$CLEARHEAD_DATA/a.tsv: no such file, because CLEARHEAD_DATA is .*nowhere, which"
    ):
        build(DataSettings(tsv="$CLEARHEAD_DATA/a.tsv"), LETTERS)


def test_a_tokenizer_is_learned_or_loaded(write: Write, tmp_path: Path) -> None:
    data = DataSettings(tsv=write("p.tsv", "ab ab ab\tcd cd cd\n" * 20))
    learned = build(data, asked=TokenizerSettings(vocab_size=264)).tokenizer
    assert learned.size == 264
    assert learned.encode("ab") != learned.encode("a") + learned.encode("b"), "both sides were learned from"
    assert learned.encode("cd") != learned.encode("c") + learned.encode("d")
    letters = build(data, asked=TokenizerSettings(kind="characters")).tokenizer
    assert letters.size == len(SPECIAL) + len("abcd ")
    letters.save(tmp_path / "letters.json")
    asked = TokenizerSettings(path=str(tmp_path / "letters.json"))
    assert build(data, asked=asked).tokenizer.encode("dab") == letters.encode("dab")
    Characters("abcd ", special=["<pad>", "</s>"]).save(tmp_path / "letters.json")
    with pytest.raises(InputError, match=r"lacks the special token '<s>' \(it has: <pad>, </s>\)"):
        build(data, asked=asked)
    with pytest.raises(InputError, match="give one of them"):
        build(data, asked=TokenizerSettings(kind="bpe", path="x"))
    with pytest.raises(InputError, match="'integers' is for the tasks on lists"):
        build(data, asked=TokenizerSettings(kind="integers"))


def test_dropout_cuts_words_anew_in_every_epoch(write: Write) -> None:
    data = DataSettings(tsv=write("p.tsv", "unbelievable\tunbelievable believers\n" * 40), max_length=14)
    plain = build(data, asked=TokenizerSettings(vocab_size=275))
    tokenizer = plain.tokenizer
    splits, again = (build(data, tokenizer, TokenizerSettings(dropout=0.3)) for _ in range(2))
    seen, lengths = set(), set()
    for epoch in (0, 1, 0):
        batch = splits.train.collate(range(len(splits.train)), 7, epoch)
        for row in batch.labels:
            ids = row[(row != IGNORE) & (row != tokenizer.eos_id)].tolist()
            assert tokenizer.decode(ids) == "unbelievable believers"
            seen.add(tuple(ids))
            lengths.add(len(ids))
        assert max(lengths) < 14, "what would be too long stays as it was"
        again.train.collate([0], 7, 2 - epoch)  # another history
        assert torch.equal(again.train.collate(range(len(splits.train)), 7, epoch).labels, batch.labels)
        assert max(batch.count for batch in map(splits.train.collate, splits.train.plan(0, 0, 30))) <= 30
    assert len(seen) > 20
    assert not torch.equal(*(splits.train.collate(range(9), 7, epoch).inputs["source"][:, :4] for epoch in (0, 1)))
    for epoch in (0, 1):
        assert torch.equal(splits.validation.collate([0], 7, epoch).labels, plain.validation.collate([0]).labels), (
            "validation is never changed"
        )
    with pytest.raises(InputError, match=r"tokenizer.dropout is for parallel text"):
        build(DataSettings(task="copy"), asked=TokenizerSettings(dropout=0.1))
    with pytest.raises(InputError, match=r"below 1, not 1.0"):
        TokenizerSettings(dropout=1.0)


@pytest.fixture(scope="module")
def multi30k(data: Path) -> Splits:
    folder = data / "multi30k"
    names = {"": "train", "validation_": "val", "test_": "test_2016_flickr"}
    files: dict[str, Any] = {
        split + side: str(folder / f"{name}.{language}.gz")
        for split, name in names.items()
        for side, language in (("source", "en"), ("target", "de"))
    }
    return build(DataSettings(**files), asked=TokenizerSettings(vocab_size=10_000))


def test_multi30k_is_whole(multi30k: Splits) -> None:
    assert multi30k.test is not None
    assert (len(multi30k.train), len(multi30k.validation), len(multi30k.test)) == (29_000, 1_014, 1_000)
    assert multi30k.tokenizer.size == 10_000
    assert list(multi30k.skipped()) == []
    assert multi30k.train.examples(1) == [
        (
            "Two young, White males are outside near many bushes.",
            "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
        )
    ]
    last = multi30k.test.collate([999])
    assert multi30k.tokenizer.decode(last.labels[0, :-1].tolist()) == multi30k.test.examples()[999].target


@pytest.mark.parametrize("max_tokens", [1024, 4096, 8192])
def test_nine_tenths_of_a_multi30k_epoch_are_real_tokens(multi30k: Splits, max_tokens: int) -> None:
    assert isinstance(multi30k.train, Pairs)
    batches = [multi30k.train.collate(indices) for indices in multi30k.train.plan(1, 0, max_tokens)]
    sources = [batch.inputs["source"] for batch in batches]
    positions = sum(batch.labels.numel() + source.numel() for batch, source in zip(batches, sources, strict=True))
    padding = multi30k.tokenizer.pad_id
    assert padding is not None
    real = sum(batch.count + int((source != padding).sum()) for batch, source in zip(batches, sources, strict=True))
    assert real / positions >= 0.9
    assert sum(batch.count for batch in batches) == (multi30k.train.targets.lengths - 1).sum()
    assert np.median([batch.count for batch in batches]) > 0.98 * max_tokens


def test_data_that_nobody_has_fetched_is_missed_with_where_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As from an installed wheel: no folder beside it, and no variable."""
    monkeypatch.delenv("CLEARHEAD_DATA", raising=False)
    monkeypatch.setattr("clearhead.data.files.__file__", str(tmp_path / "lib" / "site-packages" / "a" / "b" / "c.py"))
    with pytest.raises(InputError) as refused:
        build(load_recipe("multi30k").data)
    said = str(refused.value)
    assert said.startswith("$CLEARHEAD_DATA/multi30k/train.en.gz: no such file, because CLEARHEAD_DATA is not set; ")
    assert "https://github.com/multi30k/dataset" in said
    assert str(tmp_path) not in said
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    with pytest.raises(
        InputError, match=r"input\.txt: no such file; tinyshakespeare is to hold input.txt from https://"
    ):
        build(load_recipe("shakespeare").data)
