"""`held_out_scores`: what `clearhead evaluate RUN` says, as one call in Python, for each kind of data."""

import math
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.decoding.evaluation import (
    compare,
    corpus_scores,
    held_out_scores,
    text_file_scores,
    text_scores,
    translation_scores,
)
from clearhead.errors import InputError
from clearhead.tokenizer import Integers
from tests.decoding.models import opinionated, small_run, write_run

LISTS = {"symbols": 8, "longest": 4, "examples": 100, "held_out": 20}
SOURCES, TARGETS = ["the cat", "a dog sat", "the mat", "on"], ["x", "the mat", "a cat", "dog"]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A run whose recipe names files of parallel text."""
    for name, lines in {"s": SOURCES, "t": TARGETS}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    places: dict[str, Any] = {
        f"{part}{key}": str(tmp_path / name)
        for part in ("", "validation_", "test_")
        for key, name in (("source", "s"), ("target", "t"))
    }
    return small_run(tmp_path / "pairs", "encoder-decoder", data=places)


def test_translations_of_the_run_s_own_test_data(pairs: Path) -> None:
    model = clearhead.load(pairs)
    outputs = [one.text for one in model.translate(SOURCES, beam_size=2)]
    assert held_out_scores(model, pairs, beam_size=2) == {"test": corpus_scores(outputs, TARGETS)}
    first = held_out_scores(model, pairs, limit=2, beam_size=2)["test"]
    assert first == translation_scores(model, SOURCES[:2], TARGETS[:2], beam_size=2)


def test_a_baseline_is_another_model_or_its_output(pairs: Path, tmp_path: Path) -> None:
    model, other = clearhead.load(pairs), clearhead.load(small_run(tmp_path / "other", "encoder-decoder", seed=1))
    outputs, others = ([one.text for one in one.translate(SOURCES)] for one in (model, other))
    wanted = compare(outputs, others, TARGETS)
    assert held_out_scores(model, pairs, baseline=other) == {"test": wanted}
    assert held_out_scores(model, pairs, baseline=others) == {"test": wanted}


def test_tasks_have_right_answers_and_no_baseline(tmp_path: Path) -> None:
    data = {**LISTS, "task": "copy"}
    run = write_run(tmp_path / "run", opinionated(0, vocab_size=12).float(), Integers(8), data=data)
    model = clearhead.load(run)
    assert held_out_scores(model, run)["test"]["examples"] == 20
    assert held_out_scores(model, run, limit=5)["test"]["examples"] == 5
    with pytest.raises(InputError, match="a baseline is for translations"):
        held_out_scores(model, run, baseline=model)


def test_labels_can_be_limited(tmp_path: Path) -> None:
    head = {"kind": "tokens", "classes": 5, "bias": False}
    encoder = opinionated(0, vocab_size=12, kind="encoder", head=head).float()
    run = write_run(tmp_path / "run", encoder, Integers(8), data={**LISTS, "task": "count"})
    scores = held_out_scores(clearhead.load(run), run)["test"]
    assert scores["examples"] == 20
    assert math.isfinite(scores["loss"])
    assert held_out_scores(clearhead.load(run), run, limit=7)["test"]["examples"] == 7


def test_texts(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the cat sat\n\non the mat\n")
    data = {"text": str(tmp_path / "text"), "validation_text": str(tmp_path / "text"), "documents": "blank-line"}
    run = small_run(tmp_path / "run", "decoder", data=data)
    model = clearhead.load(run)
    documents = ["the cat sat", "on the mat"]
    assert text_file_scores(model, tmp_path / "text") == text_scores(model, documents, model.window())
    assert text_file_scores(model, tmp_path / "text", limit=1) == text_scores(model, documents[:1], model.window())
    assert held_out_scores(model, run) == {"validation": text_scores(model, documents, model.window())}


@pytest.mark.parametrize("ending", ["line", "file", "none"])
def test_documents_of_a_text_end_as_in_training(tmp_path: Path, ending: str) -> None:
    (tmp_path / "text").write_text("the cat sat\non the mat\n\nthe dog\n")
    data = {"text": str(tmp_path / "text"), "validation_text": str(tmp_path / "text"), "documents": ending}
    run = small_run(tmp_path / "run", "decoder", data=data)
    model = clearhead.load(run)
    assert text_file_scores(model, tmp_path / "text") == held_out_scores(model, run)["validation"]
