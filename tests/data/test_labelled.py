"""Labels: what is not one of them is refused, and texts that were cut are counted."""

import pytest

from clearhead.data import DataSettings, build
from clearhead.data.labelled import Labelled, Row, check_labels, mark_texts
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
