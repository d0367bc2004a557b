"""What `clearhead data look` finds in data that somebody spoiled, and that it finds nothing in what is in order."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clearhead.data import DataSettings, TokenizerSettings, build
from clearhead.data.look import CONTRARY, COPY, DUPLICATE, EXCHANGED, KNOWN, Looks, look

Write = Callable[[str, str], str]
BOTH = "the der a ein man Mann woman Frau walks geht runs läuft sees sieht house Haus dog Hund street Straße with mit"
ENGLISH, GERMAN = BOTH.split()[::2], BOTH.split()[1::2]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str) -> str:
        (tmp_path / name).write_text(content)
        return str(tmp_path / name)

    return write


@pytest.fixture
def pairs() -> list[tuple[str, str]]:
    draw = random.Random(1)
    chosen = [[draw.randrange(len(ENGLISH)) for _ in range(draw.randint(4, 20))] for _ in range(300)]
    return [(" ".join(ENGLISH[i] for i in one), " ".join(GERMAN[i] for i in one)) for one in chosen]


def looks(write: Write, rows: list[tuple[str, ...]], key: str = "tsv", **changes: Any) -> tuple[Looks, Looks]:
    content = "".join("\t".join(row) + "\n" for row in rows)
    named: dict[str, Any] = {key: write("rows.tsv", content), **changes}
    settings = DataSettings(**named)
    splits = build(settings, asked=TokenizerSettings(vocab_size=400))
    return look(splits.train), look(splits.validation, splits.train)


def test_data_in_order_are_called_so(write: Write, pairs: list[tuple[str, str]]) -> None:
    for found in looks(write, pairs):  # type: ignore[arg-type]
        assert set(found.counts.values()) == {0}
        assert found.together is not None
        assert found.together > 0.9


def test_shifted_files_do_not_go_together(write: Write, pairs: list[tuple[str, str]]) -> None:
    shifted = [(source, target) for (source, _), (_, target) in pairwise(pairs)]
    train, _ = looks(write, shifted)  # type: ignore[arg-type]
    assert train.together is not None
    assert abs(train.together) < 0.2


def test_what_is_exchanged_copied_or_there_twice_is_counted_with_its_line(
    write: Write, pairs: list[tuple[str, str]]
) -> None:
    rows = list(pairs)
    for number in (20, 41, 62):
        rows[number] = rows[number][::-1]
    rows[33] = (rows[33][0], rows[33][0])
    rows[34] = (rows[35][1], rows[34][1])  # both sides in one language: wrong, but not exchanged
    rows[9] = rows[3]  # every tenth is for validation
    rows[55] = rows[3]
    train, validation = looks(write, rows)  # type: ignore[arg-type]
    assert train.counts == {DUPLICATE: 1, EXCHANGED: 3, COPY: 1}
    lines = {what: where.rpartition("line ")[2] for what, where in train.first.items()}
    assert lines == {DUPLICATE: "56", EXCHANGED: "21", COPY: "34"}
    assert validation.counts == {DUPLICATE: 0, KNOWN: 1, EXCHANGED: 0, COPY: 0}
    assert validation.first[KNOWN].endswith("line 10")


def test_one_text_with_two_labels(write: Write) -> None:
    rows = [(f"text {i} of many", "odd" if i % 2 else "even") for i in range(60)]
    rows[44] = (rows[3][0], "even")
    train, _ = looks(write, rows, "labelled")  # type: ignore[arg-type]
    assert train.counts == {DUPLICATE: 1, CONTRARY: 1}
    assert train.first[CONTRARY].endswith("line 45")


@pytest.mark.parametrize("documents", ["line", "none"])
def test_documents_are_compared_and_not_windows(documents: str, write: Write) -> None:
    lines = [f"document {i} says {i * i}\n" for i in range(60)]
    lines[19], lines[50] = lines[7], lines[7]
    settings = DataSettings(text=write("a.txt", "".join(lines)), documents=documents, context=16)  # type: ignore[arg-type]
    splits = build(settings, asked=TokenizerSettings(kind="characters"))
    train, validation = look(splits.train), look(splits.validation, splits.train)
    if documents == "none":
        assert train.counts == validation.counts == {}, "a stream has no parts that stand for themselves"
    else:
        assert train.documents == 54
        assert train.counts == {DUPLICATE: 1}
        assert validation.counts == {DUPLICATE: 0, KNOWN: 1}
        assert validation.first[KNOWN] == "document 2"
