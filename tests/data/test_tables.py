"""Columns by name or number in TSV, CSV and JSON lines; several corpora by weight; filters; what is read as what."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.data import DataSettings, Splits, TokenizerSettings, build
from clearhead.data.labelled import Labelled
from clearhead.data.pairs import Pairs
from clearhead.data.windows import Windows
from clearhead.errors import InputError
from clearhead.tokenizer import Characters, load

LETTERS = Characters([chr(code) for code in range(32, 383)] + ["\n"])
Write = Callable[[str, str | bytes], str]

PAIRS = [(f'one, {i} "quoted"', f"zwei; {i}") for i in range(30)] + [("two\nlines", "zwei\nZeilen")]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def as_csv(rows: list[tuple[Any, ...]], between: str = ",") -> str:
    made = io.StringIO()
    csv.writer(made, lineterminator="\n", delimiter=between).writerows(rows)
    return made.getvalue()


def as_json(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_same_pairs_in_every_form(write: Write, pack: Callable[[bytes], bytes]) -> None:
    ending = ".gz" if pack is gzip.compress else ""
    rows = [(i, german, english) for i, (english, german) in enumerate(PAIRS)]
    named = {"source_column": "en", "target_column": "de"}
    files: list[tuple[str, str, dict[str, Any]]] = [
        ("a.csv", as_csv([("id", "de", "en"), *rows]), named),
        ("b.csv", as_csv(rows), {"source_column": 3, "target_column": 2}),
        ("c.csv", as_csv([("target", "source"), *((german, english) for english, german in PAIRS)]), {}),
        ("d.jsonl", as_json(("id", "de", "en"), rows), named),
        ("e.jsonl", as_json(("source", "target"), list(PAIRS)), {}),
        ("f.csv", as_csv(list(PAIRS)), {}),
        ("g.csv", as_csv([("source", "target"), *PAIRS], ";"), {}),
        ("h.csv", "\ufeff" + as_csv([("source", "target"), *PAIRS], "\t").replace("\n", "\r\n"), {}),
    ]
    for name, content, columns in files:
        splits = build(DataSettings(tsv=write(name + ending, pack(content.encode())), **columns), LETTERS)
        both = [*splits.train.examples(), *splits.validation.examples()]
        assert sorted(both) == sorted(PAIRS), name
        assert not list(splits.skipped()), name
    flat = [pair for pair in rows if "\n" not in pair[1]]
    content = "id\tde\ten\n" + "".join("\t".join(map(str, row)) + "\n" for row in flat)
    found = build(DataSettings(tsv=write("a.tsv" + ending, pack(content.encode())), **named), LETTERS)  # type: ignore[arg-type]
    assert len(found.train) + len(found.validation) == 30


def test_text_and_labels_in_every_form(write: Write) -> None:
    rows = [(f"text, {i}", "even" if i % 2 == 0 else "odd") for i in range(30)]
    for name, content in (
        ("a.csv", as_csv([("text", "label"), *rows])),
        ("a.jsonl", as_json(("text", "label"), rows)),
        ("a.tsv", "".join("\t".join(row) + "\n" for row in rows)),
    ):
        data = build(DataSettings(labelled=write(name, content)), LETTERS).train
        assert isinstance(data, Labelled)
        assert data.examples(3) == rows[:3]
    lines = as_json(("id", "body"), [(i, f"document {i}\nof two lines") for i in range(30)])
    settings: dict[str, Any] = {"text": write("t.jsonl", lines), "text_column": "body", "context": 16}
    apart = build(DataSettings(**settings, documents="line"), LETTERS)
    assert isinstance(apart.validation, Windows)
    assert apart.validation.documents() == [f"document {i}\nof two lines" for i in (9, 19, 29)]
    stream = build(DataSettings(**settings), LETTERS).train
    assert isinstance(stream, Windows)
    assert LETTERS.decode(stream.ids()[:50].tolist()) == "document 0\nof two lines\ndocument 1\nof two lines\ndo"


@pytest.mark.parametrize(
    ("name", "content", "changes", "said"),
    [
        ("a.csv", 'a,b\n"x,y\n', {}, r"a.csv, line 2: not CSV"),
        ("a.csv", "a,b\nx\n", {}, r"a.csv, line 2: 1 columns; wanted 2"),
        ("a.csv", b"a,b\ncaf\xe9,x\n", {}, r"a.csv, line 2: not UTF-8: byte 0xE9"),
        (
            "a.csv",
            "a,b\nx,y\n",
            {"source_column": "c", "target_column": "a"},
            r"no column 'c'; its first line has: a, b",
        ),
        ("a.csv", "a,b\nx,y\n", {"source_column": "a"}, r"data.target_column is not said"),
        ("a.jsonl", '{"source": "x"}\n', {}, r"no field 'target'; its objects have: source .data.target_column names"),
        ("a.jsonl", '{"source": "x", "target": []}\n', {}, r"line 1: the field 'target' .* is \[\]; wanted a string"),
        ("a.jsonl", '{"source": "x", "target": null}\n', {}, r"no line can be used; 1 empty on one side"),
        ("a.csv", "a,b\n", {"source_column": 1, "target_column": 1}, r"two of the chosen columns are the same one"),
        ("a.csv", "a\nb\n", {}, r"a.csv, line 1: 1 columns; wanted at least 2, with a comma between them"),
        ("a.csv", "a,b\n".encode("utf-16"), {}, r"a.csv: UTF-16; convert it, for example with `iconv -f utf-16"),
        ("a.jsonl", '{"source": "x", "target": "y"}\nno\n', {}, r"a.jsonl, line 2: not a JSON object"),
        (
            "a.jsonl",
            '{"source": "x", "target": "y\\ud800"}\n',
            {},
            r"line 1: the field 'target' .* holds .ud800, half a character",
        ),
        ("a.jsonl", "{}\n", {"source_column": 1, "target_column": 2}, r"JSON lines have names, not numbers"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(
    write: Write, name: str, content: str | bytes, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        build(DataSettings(tsv=write(name, content), **changes), LETTERS)


# ---- several corpora -----------------------------------------------------------------------------------------------


def mixed(write: Write, kind: str, weights: tuple[float, ...] | None) -> Splits:
    """Three corpora, of which each writes its own letters."""
    sizes = {"a": 4000, "b": 700, "c": 60}
    files = []
    for letter, size in sizes.items():
        lines = "".join(f"{letter * (3 + i % 9)}\t{letter * (3 + i % 7)}\n" for i in range(size))
        files.append(write(f"{letter}.{'tsv' if kind == 'tsv' else 'txt'}", lines))
    held = write("v.txt", "abc\tabc\n" * 5)
    changes: dict[str, Any] = {kind: tuple(files), f"validation_{kind}": held, "weights": weights}
    if kind == "text":
        changes |= {"documents": "line", "context": 8}
    return build(DataSettings(**changes), Characters("abc\t\n"))


def shares(data: Any, seed: int, epoch: int, block: int | None = None) -> tuple[list[float], list[list[list[int]]]]:
    """How much of an epoch each corpus has, by the letters of its examples."""
    plans = [data.plan(seed, epoch, 64, number) for number in range(data.blocks)]
    found = np.zeros(3)
    for plan in plans:
        for batch in plan:
            tokens = data.collate(batch, seed, epoch).inputs["tokens" if data.kind == "decoder" else "source"].numpy()
            for number, letter in enumerate("abc"):
                (token,) = data.tokenizer.encode(letter)
                found[number] += (
                    (tokens == token).sum(1) > (tokens.shape[1] // 2 if data.kind == "decoder" else 0)
                ).sum()
    return (found / found.sum()).tolist(), plans


@pytest.mark.parametrize("kind", ["tsv", "text"])
def test_a_mixture_is_what_was_asked_for(kind: str, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 1% over an epoch, a function of (seed, epoch, block), and every example of a corpus before any again."""
    monkeypatch.setattr("clearhead.data.plan.BLOCK", 1000)
    data = mixed(write, kind, (1, 2, 1)).train
    for epoch in (0, 3):
        found, plans = shares(data, 7, epoch)
        assert found == pytest.approx([0.25, 0.5, 0.25], abs=0.01)
        again = mixed(write, kind, (1, 2, 1)).train
        assert again.plan(7, epoch, 64, 2) == plans[2]
        assert again.plan(8, epoch, 64, 2) != plans[2]
    even, _ = shares(mixed(write, kind, None).train, 7, 0)
    assert even[0] > 0.8, "without weights, as many as there are"


def test_of_a_corpus_all_is_seen_before_any_again(write: Write) -> None:
    data = mixed(write, "tsv", (1, 2, 1)).train
    assert isinstance(data, Pairs)
    seen: list[int] = []
    for epoch in range(4):  # a quarter of 4,760 an epoch, of 4,000
        seen += [index for batch in data.plan(7, epoch, 64) for index in batch if index < 4000]
    first = seen[:4000]
    assert len(seen) == pytest.approx(4760, abs=4)
    assert len(set(seen)) == 4000
    assert first != sorted(first)


def test_a_corpus_of_which_nothing_is_left_cannot_be_mixed(write: Write) -> None:
    held, good = write("v.tsv", "a\tb\n"), write("a.tsv", "a\tb\n" * 9)
    for content, left in (("a" * 40 + "\tb\n", 0), ("a\tb\n", 1)):
        files = (good, write("b.tsv", content))
        settings = DataSettings(tsv=files, validation_tsv=held, weights=(1, 1), max_length=20)
        if left:
            assert len(build(settings, LETTERS).train) == 10
        else:
            with pytest.raises(InputError, match=r"b\.tsv: nothing is left of it to be mixed"):
                build(settings, LETTERS)


def test_several_validation_and_test_sets(write: Write, tmp_path: Path) -> None:
    from clearhead.training.config import Recipe, TrainingSettings
    from clearhead.training.session import train

    rows = "".join(f"{'ab'[i % 2] * (1 + i % 5)}\t{'ba'[i % 2] * (1 + i % 5)}\n" for i in range(200))
    sets = (write("news.tsv", "a\tb\naa\tbb\n"), write("talks.tsv", "b\ta\nbb\taa\n"))
    data = DataSettings(tsv=write("t.tsv", rows), validation_tsv=sets, test_tsv=sets)
    model = {"preset": "tiny", "d_model": 16, "heads": 2, "d_ff": 16, "encoder_layers": 1, "decoder_layers": 1}
    settings = TrainingSettings(steps=4, max_tokens=100, warmup=2, peak=1e-3, validate_every=2, threads=1, samples=0)
    recipe = Recipe(data, model, TokenizerSettings(kind="characters"), settings)
    outcome = train(recipe, tmp_path / "run", quiet=True)
    assert set(outcome.splits.more) == {"talks.tsv"}
    assert set(outcome.tests) == {"test", "talks.tsv"}
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["validation"]
    assert row["loss"] != row["loss talks.tsv"]
    assert outcome.progress.best == pytest.approx(min(row["loss"], outcome.progress.best or 0))


# ---- what is left out, and forms of text ---------------------------------------------------------------------------


def test_filters_leave_out_what_they_say_and_only_from_training(write: Write) -> None:
    rows = ["abc\tabd", "abc\tabd", "a\ta", "abcd\tabcdefghijklmnop", *(f"word {i}\tWort {i}" for i in range(20))]
    held = write("v.tsv", "a\ta\na\ta\nabcd\tabcdefghijklmnop\n")
    settings = DataSettings(
        tsv=write("t.tsv", "\n".join(rows)), validation_tsv=held, deduplicate=True, min_length=3, max_ratio=2.5
    )
    splits = build(settings, LETTERS)
    assert len(splits.train) == 21
    assert len(splits.validation) == 3
    said = {one.reason: (one.count, one.first.rpartition("/")[2]) for one in splits.train.skipped}
    assert said == {
        "there before": (1, "t.tsv, line 2"),
        "shorter than data.min_length = 3 tokens": (1, "t.tsv, line 3: 2 tokens"),
        "one side more than data.max_ratio = 2.5 times as long as the other": (1, "t.tsv, line 4: 17 tokens"),
    }
    documents = DataSettings(text=write("t.txt", "one\ntwo\none\nlonger\n" * 3), documents="line", deduplicate=True)
    assert len(build(documents, LETTERS).validation) + len(build(documents, LETTERS).train) > 0
    train = build(documents, LETTERS).train
    assert isinstance(train, Windows)
    assert train.numbers().max() == 1, "two documents to train on and one to validate with"


def test_seen_knows_what_was_sorted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.data import seen

    monkeypatch.setattr(seen, "RECENT", 16)
    before = seen.Seen()
    assert [before(str(i % 50)) for i in range(200)] == [False] * 50 + [True] * 150
    assert not before("a", "b"), "two texts are not the text of both"
    assert not before("ab")


def test_small_letters_and_forms_belong_to_the_tokenizer(write: Write, tmp_path: Path) -> None:
    rows = "".join(f"The ﬁrst CAFE\u0301 {i}\tDas ERSTE Café {i}\n" for i in range(30))
    asked = TokenizerSettings(kind="characters", lowercase=True, normalize="NFKC")
    splits = build(DataSettings(tsv=write("t.tsv", rows)), asked=asked)
    assert isinstance(splits.train, Pairs)
    read = splits.tokenizer.decode(splits.train.sources[0][:-1].tolist())
    assert read == "the first café 0"
    splits.tokenizer.save(tmp_path / "tokenizer.json")
    again = load(tmp_path / "tokenizer.json")
    assert again.encode_ordinary("THE ﬁRST") == splits.tokenizer.encode_ordinary("the first")
    assert again.unk_id not in again.encode_ordinary("THE ﬁRST CAFÉ")
    pieces = build(DataSettings(tsv=write("t.tsv", rows)), asked=TokenizerSettings(vocab_size=300, lowercase=True))
    assert pieces.tokenizer.decode(pieces.tokenizer.encode("DAS Erste")) == "das erste"
    assert pieces.tokenizer.encode_batch(["DAS Erste"]) == [pieces.tokenizer.encode("das erste")]
    with pytest.raises(InputError, match=r"tokenizer.lowercase and normalize are for one that is learned"):
        TokenizerSettings(path="tokenizer.json", lowercase=True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"tsv": ("a", "b"), "weights": (1.0,)},
            r"data.weights must be a number above 0 for each corpus, not \[1.0\] for 2",
        ),
        ({"tsv": ("a", "b"), "weights": (1.0, 0.0)}, "data.weights must be a number above 0"),
        ({"source": ("a", "b"), "target": "c"}, "data.source 2 and data.target 1 files: as many are wanted"),
        ({"tsv": "a", "max_ratio": 0.5}, "data.max_ratio must be at least 1, not 0.5"),
        ({"tsv": "a", "min_length": 0}, "data.min_length must be at least 1, not 0"),
        ({"text": "a", "deduplicate": True}, "data.deduplicate is for documents, and one stream is none"),
        ({"text": "a", "max_ratio": 2.0}, "data.max_ratio means nothing for data given by 'text'"),
        ({"tsv": "a", "source_column": 0}, "data.source_column must be the name of a column, or its number from 1"),
    ],
)
def test_settings_that_cannot_be_meant(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        DataSettings(**values)
