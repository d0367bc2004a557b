"""Plain text: windows that hold it all, and documents that stay apart."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import clearhead
from clearhead.data import IGNORE, DataSettings, TokenizerSettings, build
from clearhead.data.batch import Skipped, Tally
from clearhead.data.files import find
from clearhead.data.masked import MASK, MaskedTokens
from clearhead.data.text import read_text
from clearhead.data.windows import NextTokens
from clearhead.errors import InputError
from clearhead.tokenizer import SPECIAL, Characters, load

ALPHABET = "abcdefghijklmnopqrstuvwxyz \n"
LETTERS = Characters(ALPHABET, special=(*SPECIAL, MASK))
CHARACTERS = TokenizerSettings(kind="characters")

Windows = NextTokens | MaskedTokens
Write = Callable[[str, str | bytes], str]


def stream(text: str, context: int, shifted: bool = False, kind: type[Windows] = NextTokens) -> Windows:
    return kind.of([text], False, LETTERS, context, shifted)


def documents(texts: list[str], context: int, shifted: bool = False, kind: type[Windows] = NextTokens) -> Windows:
    return kind.of(texts, True, LETTERS, context, shifted)


def read(files: str | tuple[str, ...], documents: str, strict: bool) -> tuple[list[str], list[Skipped]]:
    """The documents of files, put together again, and what was left out."""
    settings = DataSettings(text=files, documents=documents)  # type: ignore[arg-type]
    tally, found = Tally(), list[str]()
    for _, _, piece in read_text([find(files)], settings, None, "test" if strict else "train", tally):
        found = [*found, piece.text] if piece.first else [*found[:-1], found[-1] + piece.text]
    return found, tally.skipped()


@given(text=st.text(ALPHABET, min_size=2, max_size=200), context=st.integers(1, 40))
def test_evaluation_windows_hold_every_token_once(text: str, context: int) -> None:
    dataset = stream(text, context)
    batch = dataset.collate(range(len(dataset)), seed=9, epoch=9)
    counted = batch.labels != IGNORE
    assert LETTERS.decode(batch.inputs["tokens"][counted].tolist()) == text[:-1]
    assert LETTERS.decode(batch.labels[counted].tolist()) == text[1:]
    assert batch.count == len(text) - 1
    assert batch.labels.shape == (len(dataset), context)
    assert set(batch.inputs) == {"tokens"}, "one document needs no numbers"


def test_each_way_to_read_a_text_says_which_model_it_is_for() -> None:
    assert (NextTokens.kind, NextTokens.head) == ("decoder", {})
    assert (MaskedTokens.kind, MaskedTokens.head) == ("encoder", {"kind": "masked"})


def test_training_windows_are_shifted_pieces_of_the_text() -> None:
    text = "".join(np.random.default_rng(0).choice(list(ALPHABET), 500))
    dataset = stream(text, 16, shifted=True)
    starts, whole = set(), []
    for epoch in range(12):
        batch = dataset.collate(range(len(dataset)), seed=3, epoch=epoch)
        assert batch.count == batch.labels.numel() == 16 * len(dataset)
        joined = LETTERS.decode(batch.inputs["tokens"].flatten().tolist())
        start = text.index(joined)  # all windows of an epoch, one after the other, are one piece
        assert text[start + 1 : start + 1 + len(joined)] == LETTERS.decode(batch.labels.flatten().tolist())
        starts.add(start)
        whole.append(joined)
        assert len(text) - len(joined) < 2 * 16
    assert len(starts) > 4
    assert starts <= set(range(16))
    again = stream(text, 16, shifted=True)
    for epoch in (11, 2):
        same = again.collate([7, 3], seed=3, epoch=epoch)
        assert LETTERS.decode(same.inputs["tokens"][1].tolist()) == whole[epoch][48:64]
    plans = [dataset.plan(3, epoch, 64) for epoch in range(2)]
    assert plans[0] != plans[1]
    assert sorted(index for batch in plans[0] for index in batch) == list(range(len(dataset)))
    assert {len(batch) for batch in plans[0]} <= {3, 4}, "nearly equal sizes, within max_tokens"


def test_documents_have_marks_and_numbers() -> None:
    dataset = documents(["abc", "d", "ef"], context=8)
    assert len(dataset) == 2
    batch = dataset.collate([0, 1])
    bos, eos = LETTERS.bos_id, LETTERS.eos_id
    a, b, c, d, e, f = LETTERS.encode("abcdef")
    assert batch.inputs["tokens"][0].tolist() == [bos, a, b, c, bos, d, bos, e]
    assert batch.labels[0].tolist() == [a, b, c, eos, d, eos, e, f]
    assert batch.inputs["documents"][0].tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert batch.inputs["tokens"][1, 0] == f
    assert batch.labels[1].tolist() == [eos] + [IGNORE] * 7
    assert batch.count == 9
    assert "documents" not in dataset.collate([1]).inputs, "a single document in each row"


@pytest.mark.parametrize("kind", [NextTokens, MaskedTokens])
def test_a_document_has_its_own_ids(kind: type[Windows]) -> None:
    texts = ["abc", "d", "ef"]
    dataset = documents(texts, context=8, kind=kind)
    assert [LETTERS.decode(dataset.document_ids(i).tolist()) for i in range(3)] == [f"<s>{text}</s>" for text in texts]


def test_gpt2_has_one_mark_for_both_ends(data: Path) -> None:
    tokenizer = load(data / "gpt2-bpe" / "encoder.json")
    batch = NextTokens.of(["Hi", "Hi"], True, tokenizer, 4, False).collate([0])
    (hi,), mark = tokenizer.encode("Hi"), tokenizer.eos_id
    assert batch.inputs["tokens"].tolist() == [[mark, hi, mark, hi]]
    assert batch.labels.tolist() == [[hi, mark, hi, mark]]


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_no_document_sees_its_neighbour(kind: str) -> None:
    head = {"head": {"kind": "masked"}} if kind == "encoder" else {}
    config = clearhead.configure("tiny", kind=kind, vocab_size=LETTERS.size, d_model=16, heads=2, d_ff=16, **head)
    model = clearhead.build(config).double().eval()
    task = NextTokens if kind == "decoder" else MaskedTokens

    def states(*texts: str) -> torch.Tensor:
        batch = documents([*texts], 16, kind=task).collate([0])
        # masks fall where they fall: compare with whole documents
        inputs: dict[str, Any] = dict(batch.inputs)
        if kind == "encoder":
            inputs["tokens"] = inputs["tokens"].where(batch.labels == IGNORE, batch.labels)
        return model.hidden(**inputs)[0]

    one, other = states("abc", "defg", "hi"), states("xyz", "defg", "jk")
    start, length = (4, 5) if kind == "decoder" else (5, 6)  # an encoder reads </s> too
    assert torch.equal(one[start : start + length], other[start : start + length])
    assert not torch.equal(one[:start], other[:start])


def test_shakespeare_is_split_as_nanogpt_does(data: Path) -> None:
    path = data / "tinyshakespeare" / "input.txt"
    splits = build(DataSettings(text=str(path), context=64), asked=CHARACTERS)
    text = path.read_text()
    assert isinstance(splits.train, NextTokens)
    assert isinstance(splits.validation, NextTokens)
    assert splits.tokenizer.size == 65 + len(SPECIAL)
    train = splits.tokenizer.decode(splits.train.ids().tolist())
    validation = splits.tokenizer.decode(splits.validation.ids().tolist())
    assert train == text[: int(len(text) * 0.9)][:-1]
    assert validation == text[int(len(text) * 0.9) :][:-1]
    assert len(splits.validation) == -(-111_539 // 64)
    assert not splits.validation.shifted.any()
    prompt, rest = splits.validation.examples(1)[0]
    assert text[int(len(text) * 0.9) :].startswith(prompt + rest)


def test_the_standard_library_is_text_that_everyone_has() -> None:
    settings = DataSettings(text="$STDLIB/[a-f]*.py", documents="file", context=128, validation_share=0.2)
    splits = build(settings, LETTERS)
    for part, files in ((splits.train, 20), (splits.validation, 2)):
        assert isinstance(part, NextTokens)
        assert part.numbers().max() > files


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str | bytes) -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / name)

    return write


def test_what_a_document_is(write: Write, tmp_path: Path) -> None:
    first = write("a.txt", "one\ntwo\n\n \t\nthree\r\n\r\n\nfour\n")
    write("b.txt", "five\u2028six")
    write("c.txt", "")
    both = str(tmp_path / "*.txt")
    assert read(both, "none", True)[0] == ["one\ntwo\n\n \t\nthree\r\n\r\n\nfour\nfive\u2028six"]
    assert read(both, "file", True)[0][1:] == ["five\u2028six"]
    lines = ["one", "two", "three", "four", "five\u2028six"]
    assert read(both, "line", True)[0] == lines
    assert read(both, "blank-line", True)[0] == ["one\ntwo", "three", "four", "five\u2028six"]
    assert read((first, first), "line", True)[0] == lines[:4] * 2
    skipped = read(both, "file", True)[1]
    assert [(s.count, s.reason, s.first) for s in skipped] == [(1, "empty file", str(tmp_path / "c.txt"))]


def test_a_file_that_was_there_before_is_left_out(write: Write, tmp_path: Path) -> None:
    for name, content in (("a", "one"), ("b", "two"), ("c", "one"), ("d", "three")):
        write(f"{name}.txt", content)
    settings = DataSettings(text=str(tmp_path / "*.txt"), documents="file", deduplicate=True)
    tally = Tally()
    pieces = read_text([find(str(tmp_path / "*.txt"))], settings, None, "train", tally)
    assert [piece.text for _, _, piece in pieces] == ["one", "two", "three"]
    assert [str(one) for one in tally.skipped()] == [f"skipped 1: there before (first: {tmp_path / 'c.txt'})"]


def test_text_that_is_not_utf8(write: Write, tmp_path: Path) -> None:
    bad = write("bad.txt", b"good\n" * 20 + b"caf\xe9\n")
    write("good.txt", "fine")
    lines, skipped = read(bad, "line", strict=False)
    assert lines == ["good"] * 20
    assert str(skipped[0]) == f"skipped 1: not UTF-8 (first: {bad}, line 21)"
    files, skipped = read(str(tmp_path / "*.txt"), "file", strict=False)
    assert files == ["fine"]
    assert skipped[0].first == bad
    for documents, strict in (("none", False), ("blank-line", False), ("line", True), ("file", True)):
        with pytest.raises(InputError, match=r"bad.txt, line 21: not UTF-8: byte 0xE9 at byte 4"):
            read(bad, documents, strict)


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        ("", {}, "t.txt: the file is empty"),
        (" \n\n", {}, "t.txt: no text in it"),
        ("ab", {}, "t.txt: 2 characters are too few to train on"),
        ("ab\n", {"documents": "line"}, "only 1 example"),
        ("ab" * 99, {"validation_text": "nowhere.txt"}, "nowhere.txt: no such file"),
    ],
)
def test_text_that_is_refused(write: Write, content: str | bytes, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(DataSettings(text=write("t.txt", content), **changes), LETTERS)


@pytest.mark.parametrize("documents", ["none", "line", "blank-line", "file"])
def test_a_file_without_text_is_refused(write: Write, documents: str) -> None:
    with pytest.raises(InputError, match=r"blank\.txt: no text in it$"):
        read(write("blank.txt", " \n\n"), documents, strict=False)


def test_a_file_of_which_nothing_is_text_is_refused_with_why(write: Write) -> None:
    with pytest.raises(InputError, match=r"bad\.txt: no text in it; 1 of its parts are not UTF-8$"):
        read(write("bad.txt", b"caf\xe9\n"), "file", strict=False)


@pytest.mark.parametrize("documents", ["none", "line", "blank-line", "file"])
def test_json_lines_are_no_text(write: Write, documents: str) -> None:
    """They would be learned with their braces, keys and escapes."""
    rows = [json.dumps({"id": n, "text": f"line {n}"}) for n in range(30)]
    with pytest.raises(InputError, match=r"a.jsonl: JSON lines, and text is wanted.*`jq -r \.text`.*id, text"):
        read(write("a.jsonl", "\n".join(rows)), documents, strict=False)
    # what merely holds an object now and then, or is one object, or lists, is text
    for content in ("\n".join([*rows[:5], "and so on"]), rows[0] + "\n", "[1]\n[2]\n", '{"a": 1}\n{"b": 2}\n'):
        assert read(write("text", content), documents, strict=False)[0]


def test_files_that_are_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file there, only folders;"):
        read(str(tmp_path), "none", True)
    with pytest.raises(InputError, match="/dev/zero: no file there, only folders, pipes or devices;"):
        read("/dev/zero", "none", True)


def test_a_context_longer_than_a_batch_is_refused() -> None:
    with pytest.raises(InputError, match=r"data.context = 16 tokens.*training.max_tokens = 15"):
        stream("abc" * 99, 16).plan(0, 0, 15)


def test_documents_need_marks() -> None:
    with pytest.raises(InputError, match=r"needs '<s>' and '</s>' \(it has: none\)"):
        NextTokens.of(["abc"], True, Characters(ALPHABET, special=()), 4, False)


def test_validation_documents_are_every_tenth(write: Write) -> None:
    names = "abcdefghijklmnopqrst"
    splits = build(DataSettings(text=write("t.txt", "\n".join(names)), documents="line", context=4), LETTERS)
    assert isinstance(splits.train, NextTokens)
    assert isinstance(splits.validation, NextTokens)
    assert LETTERS.decode(splits.validation.labels().tolist()).replace("</s>", "") == "jt"
    assert [splits.validation.documents(limit) for limit in (0, 1, None)] == [[], ["j"], ["j", "t"]]
    assert LETTERS.decode(splits.train.labels().tolist()).replace("</s>", "") == names.replace("j", "").replace("t", "")


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_stream_is_cut_in_two_and_nothing_is_in_both(share: float, write: Write) -> None:
    text = "".join(np.random.default_rng(0).choice(list(ALPHABET), 203))
    path = Path(write("t.txt", text))
    parts = {"train": "", "validation": ""}
    for part, _, piece in read_text([[path]], DataSettings(text=str(path)), share, "train", Tally()):
        parts[part] += piece.text
    assert parts["train"] + parts["validation"] == text
    assert len(parts["validation"]) == pytest.approx(share * 203, abs=1)


def test_examples_are_the_first_quarter_of_a_window_and_the_rest() -> None:
    text = "".join(np.random.default_rng(1).choice(list(ALPHABET), 101))
    dataset = stream(text, 20)
    found = dataset.examples(3)
    assert found == [(text[start : start + 5], text[start + 5 : start + 20]) for start in (0, 20, 40)]
    assert len(dataset.examples()) == 5
    assert stream(text, 3).examples(1) == [(text[:1], text[1:3])]
