"""Labels: what is not one of them is refused, and texts that were cut are counted."""

from pathlib import Path

import pytest

from clearhead.data import DataSettings, build
from clearhead.data.batch import Example
from clearhead.data.labelled import Labelled, Row, check_labels, mark_texts
from clearhead.data.pairs import Pairs
from clearhead.errors import InputError
from clearhead.tokenizer import Characters


@pytest.mark.parametrize(
    ("count", "known"), [(8, "n0, n1, n2, n3, n4, n5, n6, n7"), (9, "n0, n1, n2, n3, n4, n5, n6, n7, …")]
)
def test_a_label_that_is_none_of_those_is_told_with_eight_that_are(count: int, known: str) -> None:
    with pytest.raises(InputError, match=rf"a\.tsv, line 3: the label 'x' is none of .* \({known}\)$"):
        check_labels([f"n{i}" for i in range(count)], "a.tsv", {"n1": (1, 1), "x": (2, 3)})


def test_languages_have_the_labels_that_are_asked_for() -> None:
    chosen = DataSettings(task="languages", examples=40, held_out=10, locales=("de", "sv"), labels=("sv", "de"))
    found = build(chosen).train
    assert isinstance(found, Labelled)
    assert found.labels == ("sv", "de")
    few = DataSettings(task="languages", examples=40, held_out=10, locales=("de", "sv"), labels=("de", "en"))
    with pytest.raises(InputError, match=r"languages task, line \d+: the label 'sv' is none of those .*\(de, en\)"):
        build(few)


def test_texts_that_were_cut_are_counted() -> None:
    tokenizer = Characters("ab")
    mark_texts(tokenizer)
    rows = [Row(1, "a", None, "x"), Row(2, "abab", None, "y"), Row(3, "bbbbbb", None, "x")]
    data = Labelled.of(rows, tokenizer, ["x", "y"], 5, "a.tsv")
    assert [str(one) for one in data.skipped] == [
        "cut 2: longer than data.max_length = 5 tokens (first: a.tsv, line 2)"
    ]
    assert [tokenizer.decode(tokens.tolist()) for tokens in (data.tokens[i] for i in range(3))] == [
        "<s>a</s>",
        "<s>aba</s>",
        "<s>bbb</s>",
    ]


def test_only_where_texts_are_unequal_in_length_is_there_a_mask() -> None:
    tokenizer = Characters("ab")
    mark_texts(tokenizer)
    data = Labelled.of(
        [Row(1, "a", None, "x"), Row(2, "aba", None, "y"), Row(3, "b", None, "x")], tokenizer, ["x", "y"], 9, "a"
    )
    assert data.collate([0, 1]).inputs["real"].tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert "real" not in data.collate([0, 2]).inputs


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a\t\nb\t\n", r"a\.tsv: no line can be used; 2 without a label"),
        ("\tx\n\ty\n\tx\n", r"a\.tsv: no line can be used; 3 without a text"),
    ],
)
def test_a_file_of_which_no_line_can_be_used_is_refused_with_why(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(content)
    with pytest.raises(InputError, match=said):
        build(DataSettings(labelled=str(tmp_path / "a.tsv")), Characters("ab"))


def test_an_example_of_a_task_has_a_number_from_one() -> None:
    settings = DataSettings(task="languages", examples=40, held_out=10, locales=("de", "sv"))
    assert build(settings).train.name(0) == "languages task, line 1"


def test_no_examples_can_be_asked_for() -> None:
    tokenizer = Characters("ab")
    mark_texts(tokenizer)
    labelled = Labelled.of([Row(1, "a", None, "x"), Row(2, "b", None, "y")], tokenizer, ["x", "y"], 9, "a.tsv")
    pairs = Pairs.of([Example("a", "b"), Example("b", "a")], tokenizer, "a.tsv")
    assert [len(labelled.examples(limit)) for limit in (0, 1, None)] == [0, 1, 2]
    assert [len(pairs.examples(limit)) for limit in (0, 1, None)] == [0, 1, 2]
