"""What `clearhead data look` tells of data: counted here once more, by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearhead.data.look as looking
from clearhead.data import DataSettings, Splits, TokenizerSettings, build
from clearhead.data.look import look, oddity, piece, shown
from clearhead.tokenizer import Characters

LETTERS = TokenizerSettings(kind="characters")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))


def pairs(folder: Path, rows: list[tuple[str, str]], **changes: Any) -> Splits:
    (folder / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    (folder / "v.tsv").write_text("a\tb\n" * 3)
    files: dict[str, Any] = {"tsv": str(folder / "a.tsv"), "validation_tsv": str(folder / "v.tsv")}
    return build(DataSettings(**files, **changes), asked=LETTERS)


def test_lengths_ratios_and_duplicates_of_pairs(tmp_path: Path) -> None:
    rows = [("a" * n, "b" * (2 * n + 1)) for n in range(1, 10)] + [("a", "bbb"), ("a", "bbb"), ("aa", "bbb")]
    found = look(pairs(tmp_path, rows).train)
    assert (found.examples, found.looked_at) == (12, 12)
    sources = sorted(len(source) + 1 for source, _ in rows)  # with </s>
    targets = sorted(len(target) + 1 for _, target in rows)
    for values, mine in ((found.lengths["source"], sources), (found.lengths["target"], targets)):
        assert values == np.quantile(mine, looking.QUANTILES, method="nearest").tolist()
    assert found.ratios is not None
    assert found.ratios[0] == round(2 / 4, 3)  # one letter and its mark, three and theirs
    assert found.ratios[-1] == round(3 / 4, 3)
    assert found.counts[looking.DUPLICATE] == 2
    assert found.tokens == sum(sources) + sum(targets) + len(rows)  # targets have <s> as well
    assert (found.unknown, found.labels, found.odd, found.skipped) == (0, {}, {}, [])


def test_source_and_target_are_not_one_text(tmp_path: Path) -> None:
    """The same letters, cut at another place, are another example."""
    found = look(pairs(tmp_path, [("a", "ab"), ("aa", "b"), ("aab", "b"), ("a", "ab")]).train)
    assert found.counts[looking.DUPLICATE] == 1


def test_what_is_odd_is_counted_by_example(tmp_path: Path) -> None:
    rows = [("a\u200bb\u200b", "ｂ"), ("a", "\u200b"), ("\ufffd", "b\x07"), ("é", "ñ")]
    found = look(pairs(tmp_path, rows).train)
    assert found.odd == {
        "U+200B invisible": 2,
        "another form in NFKC": 1,
        "U+FFFD what could not be decoded": 1,
        "U+0007 control": 1,
    }


@pytest.mark.parametrize(
    ("character", "kind"),
    [("\x7f", "U+007F control"), ("\x1f", "U+001F control"), ("\ue000", "U+E000 private use"),
     ("\u0378", "U+0378 unassigned"), ("\ud800", "U+D800 half a character"), ("\u00ad", "U+00AD invisible"),
     ("ﬁ", "another form in NFKC"), *((fine, None) for fine in " ~\n\t\ré日")],
)  # fmt: skip
def test_characters_that_are_hardly_meant(character: str, kind: str | None) -> None:
    assert oddity(character) == kind


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    tokenizer = Characters("ab")
    (tmp_path / "a.tsv").write_text("axx\tb\nb\txa\n")
    (tmp_path / "v.tsv").write_text("a\tb\n")
    settings = DataSettings(tsv=str(tmp_path / "a.tsv"), validation_tsv=str(tmp_path / "v.tsv"))
    found = look(build(settings, tokenizer).train)
    assert (found.unknown, found.tokens) == (3, (4 + 3) + (2 + 4))


def test_of_many_examples_evenly_spaced_ones_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MOST", 10)
    rows = [("a" * (n // 4 + 1), "b") for n in range(19)]
    found = look(pairs(tmp_path, rows).train)
    assert (found.examples, found.looked_at) == (19, 10)
    assert found.lengths["source"][-1] == 18 // 4 + 2


def test_labels_are_counted_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one text\tgood\nanother\tbad\na third one\tgood\n" * 10)
    data = build(DataSettings(labelled=str(tmp_path / "a.tsv")), asked=LETTERS).train
    found = look(data)
    assert found.labels == {"bad": 9, "good": 18}
    assert found.lengths["text"][-1] == len("a third one") + 2  # with a mark at either end
    assert dict(shown(data, 0))["label"] == ["1 = good"]


def test_documents_have_lengths(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join("x" * (n % 7 + 1) + "\n" for n in range(70)))
    settings = DataSettings(text=str(tmp_path / "a.txt"), documents="line", context=8)
    found = look(build(settings, asked=LETTERS).train)
    assert found.lengths["document"][0] == 2  # a letter between its marks, of which the last is never read
    assert found.lengths["document"][-1] == 8
    assert found.ratios is None


def test_an_example_is_shown_as_the_model_gets_it(tmp_path: Path) -> None:
    data = pairs(tmp_path, [("a b", "bc")]).train
    rows = dict(shown(data, 0))
    assert rows["source pieces"] == ["a", "␣", "b", "</s>"]
    assert rows["target pieces"] == ["<s>", "b", "c"]
    names = data.tokenizer
    assert rows["target"] == [str(names.bos_id), *(str(i) for i in names.encode_ordinary("bc"))]
    assert rows["labels"] == [*(str(i) for i in names.encode_ordinary("bc")), str(names.eos_id)]


def test_an_example_is_shown_as_the_first_epoch_of_a_seed_has_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcde " * 100)
    settings = DataSettings(task="masked", text=str(tmp_path / "a.txt"), context=30)
    data = build(settings, Characters("abcde ", special=("<pad>", "<s>", "</s>", "<mask>"))).train
    tokens = data.collate([1], 7, 0).inputs["tokens"][0].tolist()
    assert dict(shown(data, 1, seed=7))["tokens"] == [str(one) for one in tokens]
    assert dict(shown(data, 1, seed=8))["tokens"] != [str(one) for one in tokens]


def test_pieces_show_what_cannot_be_seen() -> None:
    tokenizer = Characters(" \n\t")
    assert [piece(tokenizer, token) for token in tokenizer.encode_ordinary(" \n\t")] == ["␣", "⏎", "→"]
