"""Labels from end to end: columns to a run, a run to labels, and what it takes for what."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import clearhead
from clearhead.cli.commands.train import show_samples
from clearhead.data import DataSettings, TokenizerSettings, build
from clearhead.data.labelled import Labelled, labelled_ids, macro_f1, mark_texts
from clearhead.data.languages import best_possible, language_forms, write_languages
from clearhead.decoding.classify import Classifier
from clearhead.errors import InputError
from clearhead.run import Run
from clearhead.tokenizer import Characters
from clearhead.training.config import Recipe, TrainingSettings
from clearhead.training.session import train
from tests.cli.conftest import Call

MODEL = {"preset": "tiny", "d_model": 16, "heads": 2, "d_ff": 32, "encoder_layers": 1, "dropout": 0.0}
TRAINING = TrainingSettings(
    steps=150, max_tokens=600, schedule="constant", peak=1e-2, warmup=5, threads=1, validate_every=75
)


def colours(pair: bool) -> str:
    """Of one text: is it about red or blue? Of two: do they agree?"""
    lines = []
    for number in range(200):
        a, b = ("red", "blue")[number % 2], ("red", "blue")[number // 2 % 2]
        word = "xyz"[number % 3] * (1 + number % 5)
        lines.append(f"{word} {a}\t{b} {word}\t{'same' if a == b else 'other'}" if pair else f"{word} {a}\t{a}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=[False, True], ids=["texts", "pairs"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    folder = tmp_path_factory.mktemp("labels")
    (folder / "data.tsv").write_text(colours(request.param))
    data = DataSettings(labelled=str(folder / "data.tsv"))
    recipe = Recipe(data, MODEL, TokenizerSettings(kind="characters"), TRAINING)
    train(recipe, folder / "run", attach=show_samples, quiet=True)
    return folder / "run", request.param


def test_a_run_keeps_its_labels_and_predicts_them_line_by_line(trained: tuple[Path, bool], call: Call) -> None:
    run, pair = trained
    labels = ["other", "same"] if pair else ["blue", "red"]
    assert Run(run).settings["data"]["labels"] == labels
    lines = run.parent / "lines"
    lines.write_text("x red\tred x\n\ny blue\tred yy\n" if pair else "x red\n\nyy blue\n")
    status, out, err = call("predict", run, lines)
    wanted = ["same", "", "other"] if pair else ["red", "", "blue"]
    assert (status, out.decode().split("\n")[:-1], err) == (0, wanted, "")
    status, out, _ = call("predict", run, lines, "--json")
    rows = [json.loads(line) for line in out.decode().splitlines()]
    assert [row["label"] for row in rows] == wanted
    assert rows[1] == {"line": 2, "text": "", "label": ""}
    assert abs(sum(rows[0]["probabilities"].values()) - 1) < 1e-9
    assert max(rows[0]["probabilities"].values()) == rows[0]["probability"]
    status, out, _ = call("predict", run, lines, "--top", 2)
    first = out.decode().split("\n")[0].split("\t")
    assert first[::2] == [wanted[0], next(label for label in labels if label != wanted[0])]
    assert float(first[1]) > float(first[3])


def test_evaluate_and_plot_show_what_is_taken_for_what(trained: tuple[Path, bool], call: Call) -> None:
    run, pair = trained
    status, out, err = call("evaluate", run, "--json")
    assert status == 0, err
    scores = json.loads(out)["results"]["validation"]
    assert scores["examples"] == 20
    assert scores["accuracy"] > 0.9
    log = (run / "train.log").read_text()
    assert f"accuracy {scores['accuracy']:.4f}  macro_F1 {scores['macro_F1']:.4f}" in log
    assert f"→  {'same' if pair else 'blue'}" in log
    status, out, err = call("plot", run)
    assert status == 0, err
    assert (run / "plots" / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_a_classifier_reads_in_use_what_it_read_in_training(trained: tuple[Path, bool]) -> None:
    run, _ = trained
    settings = DataSettings(labelled=str(run.parent / "data.tsv"))
    opened = Run(run)
    data = build(settings, opened.tokenizer()).validation
    assert isinstance(data, Labelled)
    batch = data.collate(range(len(data)))
    with torch.inference_mode():
        logits = opened.build()(**batch.inputs)
    classifier = clearhead.load(run)
    assert isinstance(classifier, Classifier)
    assert classifier.labels == data.labels
    texts = [text if second is None else (text, second) for text, second in data.texts()]
    said = classifier.predict(texts)
    for one, row in zip(said, logits.softmax(-1), strict=True):
        assert np.allclose(one.probabilities, row.numpy(), atol=1e-5)
        assert one.label == classifier.labels[int(row.argmax())]


@pytest.mark.parametrize(
    ("content", "settings", "said"),
    [
        ("text\tlabel\na\tx\nb\ty\n", {"text_column": "words", "label_column": "label"}, "no column 'words'"),
        ("a\tx\nb\ty\n", {"text_column": 3, "label_column": 2}, "no column 3; its first line has 2"),
        ("a\tx\nb\n", {}, "line 2: 1 columns; wanted 2"),
        ("a\tb\tc\td\n", {}, "4 columns, of which none is known to be the text"),
        ("a\tx\nb\tx\nc\tx\n", {}, "the only label is 'x'"),
        ("".join(f"a\t{n}\n" for n in range(20)), {}, "is the label in another column"),
        ("a\tx\n" * 5 + "b\ty\n" * 5, {"labels": ("x", "z")}, "line 6: the label 'y' is none of those"),
        ("a\tx\nb\ty\n" * 9, {"max_length": 2}, "leaves no room"),
    ],
)
def test_what_cannot_be_labels_is_named(content: str, settings: dict[str, object], said: str, tmp_path: Path) -> None:
    (tmp_path / "data.tsv").write_text(content)
    with pytest.raises(InputError, match=said):
        build(
            DataSettings(labelled=str(tmp_path / "data.tsv"), **settings),  # type: ignore[arg-type]
            asked=TokenizerSettings(kind="characters"),
        )


def test_columns_are_chosen_by_name_or_number(tmp_path: Path) -> None:
    rows = "".join(f"{i}\tgood\ttext {i}\n{i}\tbad\tno {i}\n" for i in range(9))
    (tmp_path / "numbers.tsv").write_text(rows)
    (tmp_path / "names.tsv").write_text("id\tjudgement\tsentence\n" + rows)
    asked = TokenizerSettings(kind="characters")
    by_number = DataSettings(labelled=str(tmp_path / "numbers.tsv"), text_column=3, label_column=2)
    by_name = DataSettings(labelled=str(tmp_path / "names.tsv"), text_column="sentence", label_column="judgement")
    first, second = (build(one, asked=asked) for one in (by_number, by_name))
    assert first.train.examples() == second.train.examples()
    assert first.train.examples(1) == [("text 0", "good")]


def test_two_texts_are_cut_where_the_longer_one_is() -> None:
    tokenizer = Characters("ab")
    mark_texts(tokenizer)
    ids, segments, cut = labelled_ids(tokenizer, "aaaaaaaa", "bb", 9)
    assert tokenizer.decode(ids) == "<s>aaaa</s>bb</s>"
    assert (segments, cut) == ([0] * 6 + [1] * 3, True)
    assert labelled_ids(tokenizer, "aaaa", "bb", 9)[2] is False
    assert tokenizer.decode(labelled_ids(tokenizer, "aaaaaaaa", "bbbbb", 9)[0]) == "<s>aaa</s>bbb</s>"


def test_macro_f1_is_the_mean_over_labels() -> None:
    table = np.array([[8, 2], [1, 1]])
    wanted = (2 * 8 / (9 + 10) + 2 * 1 / (3 + 2)) / 2
    assert abs(macro_f1(np.diag(table), table.sum(0), table.sum(1)) - wanted) < 1e-12


def test_the_best_possible_reader_is_counted_exactly() -> None:
    """Against a reader who has counted what the generator itself wrote."""
    from clearhead.data.dates import divide_dates

    locales = ("da", "nb")
    best = best_possible(locales)
    assert set(language_forms(locales)) == {"da", "nb"}
    dates = [date for part in divide_dates() for date in part if date.year == 2028]
    rows = write_languages(60_000, dates, locales, 0)
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        counts.setdefault(row.text or "", {}).setdefault(row.label or "", 0)
        counts[row.text or ""][row.label or ""] += 1
    seen = sum(max(one.values()) for one in counts.values()) / len(rows)  # fits its own sample: a little too high
    assert best < seen < best + 0.09
    assert 0.5 < best < 1
