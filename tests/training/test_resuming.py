"""What may change while a run goes on, what is said of it, and what makes it another run."""

import json
import os
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.data import DataSettings, TokenizerSettings, store
from clearhead.decoding.judge import judge
from clearhead.errors import InputError
from clearhead.run import Run
from clearhead.training import resuming
from clearhead.training.checkpoint import Checkpoints
from clearhead.training.config import Recipe, TrainingSettings, load_recipe
from clearhead.training.distributed import Ranks
from clearhead.training.loop import Objective, Progress
from clearhead.training.report import Log
from clearhead.training.resuming import continue_with, flat, refuse_changed_files, refuse_changes
from clearhead.training.session import Outcome, compare_average, train
from clearhead.training.validate import Validation
from tests.training import small


def test_a_run_keeps_what_it_is() -> None:
    old = load_recipe("copy").to_dict()

    def now(*changes: str) -> dict[str, Any]:
        return load_recipe("copy", changes).to_dict()

    for change in (
        "training.seed=2",
        "data.symbols=7",
        "model.heads=2",
        "tokenizer.vocab_size=99",
        "training.optimizer=adamw",
    ):
        with pytest.raises(InputError, match=rf"runs/a was begun with {change.split('=')[0]} = .*, now it is"):
            refuse_changes(old, now(change), Path("runs/a"))
    other = {**old, "model": {**old["model"], "vocab_size": 9}}
    with pytest.raises(InputError, match=r"now it is 9, which is the size of its tokenizer.json unless it is set"):
        refuse_changes(old, other, Path("runs/a"))
    told = refuse_changes(old, now("training.clip=2.5", "training.patience=3"), Path("runs/a"))
    assert told == [
        "training.clip was 1.0, from now on it is 2.5",
        "training.patience was unset, from now on it is 3",
    ]


def test_flat_names_every_value_by_its_path() -> None:
    assert flat(tomllib.loads("a = 1\n[b]\nc = 2\n[b.d]\ne = [3]")) == {"a": 1, "b.c": 2, "b.d.e": [3]}


def log(run: Path) -> str:
    return (run / "train.log").read_text()


def test_what_became_of_each_file_is_told() -> None:
    def files(**sums: str) -> dict[str, list[dict[str, Any]]]:
        return {"data.text": [{"path": name, "size": 9, "time": 1, "sha256": one} for name, one in sums.items()]}

    before, where = files(a="0", b="1", c="2"), Path("runs/a")
    assert refuse_changed_files(before, before, where) == []
    assert refuse_changed_files(before, files(a="0", d="1", e="3"), where) == [
        "data.text: b is now d, byte for byte the same",
        "data.text: e is new",
        "data.text: c is no longer part of it",
    ]
    assert refuse_changed_files(files(a="0"), {}, where) == ["data.text: a is no longer part of it"]


def test_what_may_change_goes_on_with_a_line_in_the_log(tmp_path: Path) -> None:
    train(small.recipe(steps=8), tmp_path, quiet=True)
    changes = {"peak": 1e-4, "clip": 0.5, "patience": 9, "validate_every": 6, "label_smoothing": 0.1}
    outcome = train(small.recipe(dropout=0.0, steps=16, **changes), tmp_path, quiet=True)
    assert outcome.progress.step == 16
    said = log(tmp_path)
    for line in (
        "training.peak was 0.003, from now on it is 0.0001",
        "training.clip was 1.0, from now on it is 0.5",
        "model.dropout.residual was 0.1, from now on it is 0.0",
    ):
        assert line in said
    assert "batches are others" not in said
    settings = Run(tmp_path).settings["training"]
    assert (settings["peak"], settings["patience"]) == (1e-4, 9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    lines = [f"{'abcdefgh'[n % 8]}{'xyz'[n % 3]}{n % 10}" for n in range(90)]
    (tmp_path / "home" / "source").write_text("\n".join(lines) + "\n")
    (tmp_path / "home" / "target").write_text(
        "\n".join("a b c ." if line[0] < "e" else "d e f ." for line in lines) + "\n"
    )
    return tmp_path / "home"


def pairs(folder: Path, steps: int, run: Path | None = None, **training: Any) -> Outcome:
    usual: dict[str, Any] = {"max_tokens": 60, "peak": 3e-3, "warmup": 2, "threads": 1, "checkpoint_every": 4}
    settings = TrainingSettings(**{**usual, "validate_every": 4, "steps": steps, **training})
    data = DataSettings(source=str(folder / "source"), target=str(folder / "target"))
    recipe = Recipe(data, small.MODEL, TokenizerSettings(kind="characters"), settings)
    return train(recipe, run or folder / "run", quiet=True, judge=judge)


def test_a_moved_folder_goes_on_to_the_same_bits(folder: Path) -> None:
    straight = pairs(folder, 12, folder / "straight").run.weights("latest")
    pairs(folder, 6)
    moved = folder.with_name("away")
    shutil.move(folder, moved)
    outcome = pairs(moved, 12)
    assert f"data.source: {folder / 'source'} is now {moved / 'source'}, byte for byte the same" in log(moved / "run")
    assert "batches are others" not in log(moved / "run")
    assert all(tensor.equal(straight[name]) for name, tensor in outcome.run.weights("latest").items())


def test_a_changed_file_is_named_and_a_grown_one_begins_an_epoch(folder: Path) -> None:
    pairs(folder, 5)
    before = (folder / "source").read_text(), (folder / "target").read_text()
    (folder / "source").write_text(before[0].replace("ax0", "bx0", 1))
    with pytest.raises(InputError, match=r"data\.source: .*source is not the file that .*run was begun with \(sha256"):
        pairs(folder, 10)
    (folder / "source").write_text(before[0])  # the same bytes at another time
    assert pairs(folder, 6).progress.epoch == 0
    for side, text in zip(("source", "target"), before, strict=True):
        (folder / side).write_text(text + "ab1\n" * 40)
    outcome = pairs(folder, 8)
    said = log(folder / "run")
    assert f"data.source: {folder / 'source'} has grown by 160 bytes" in said
    assert "the batches are others than before: epoch 1 begins now" in said
    assert "the best one is looked for from here on" in said  # the held-out part is another
    assert (outcome.progress.epoch, outcome.progress.batch) == (1, 2)
    assert len(outcome.splits.train) > 100


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff\xfe", b"[" * 100_000, b"9" * 5000, b"[]", b"null", b'{"data.text": 1}', b'{"data.text": [1]}'),
        *(b'{"data.text": [{}]}', b'{"a": [{"path": [], "size": 1, "time": 1, "sha256": "0"}]}'),
        *(b'{"a": [{"path": "b", "size": true, "time": 1, "sha256": "0"}]}', b'{"a": {"b": 1}}'),
    ],
)
def test_what_was_written_of_the_data_is_checked_before_it_is_used(content: bytes, tmp_path: Path) -> None:
    assert resuming.read_files(tmp_path) == {}
    (tmp_path / "data.json").write_bytes(content)
    with pytest.raises(InputError, match=r"data\.json"):
        resuming.read_files(tmp_path)
    right = {"data.text": [{"path": "a", "size": 1, "time": 2, "sha256": "0"}]}
    resuming.write_files(tmp_path, right)
    assert resuming.read_files(tmp_path) == right


def test_an_epoch_begins_once_even_if_killed_before_it_is_saved() -> None:
    """What decides is in the checkpoint, not in the settings, which are written before anything is trained."""
    saved = Progress(step=5, epoch=0, batch=5, best=1.0, best_step=4, stale=1, batches="old", measured="same")
    for _ in range(2):
        progress = replace(saved)
        assert len(continue_with(progress, "new", "same")) == 1
        assert (progress.epoch, progress.batch, progress.best) == (1, 0, 1.0)
    assert continue_with(progress, "new", "same") == []
    assert continue_with(progress, "new", "other")
    assert (progress.best, progress.stale) == (None, 0)


def test_a_file_is_read_again_only_if_size_or_time_differ(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs(folder, 2)
    read: list[str] = []
    real = store.digest

    def digest(path: Path, size: int | None = None) -> str:
        read.append(path.name)
        return real(path, size)

    monkeypatch.setattr(store, "digest", digest)
    pairs(folder, 3)
    assert read == []
    os.utime(folder / "target", ns=(1, 1))
    pairs(folder, 4)
    assert read == ["target"]


@pytest.mark.parametrize("measure", ["exact", "BLEU", "chrF"])
def test_the_best_checkpoint_is_best_by_the_measure_that_is_named(measure: str, folder: Path) -> None:
    outcome = pairs(folder, 60, measure=measure, peak=1e-2, schedule="constant", max_tokens=200)
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = {row["step"]: row["validation"] for row in rows if "validation" in row}
    best = max(scores, key=lambda step: (scores[step][measure], -step))
    assert (folder / "run" / "best").read_text() == f"step_{best:08d}\n"
    assert outcome.progress.best == scores[best][measure] > 0
    with pytest.raises(InputError, match="'accuracy' is none that these data have: loss, exact, BLEU, chrF"):
        pairs(folder, 4, folder / "other", measure="accuracy")


@pytest.mark.parametrize("wins", [True, False])
@pytest.mark.parametrize("measure", ["loss", "chrF"])
def test_an_average_is_best_only_if_it_is_better(wins: bool, measure: str, folder: Path) -> None:
    outcome = pairs(folder, 12, average=2, measure=measure)
    run, log_file = outcome.run, Log(folder / "run" / "train.log", quiet=True)
    assert f"validation {measure} of the average " in log(folder / "run")
    validation = Validation(outcome.splits.validation, 60, measure, judge(outcome.splits))
    score = validation.scores(Objective(run.build("average"), 0.0, torch.float32), Ranks())[measure]
    best = score + (0.1 if wins == (measure == "loss") else -0.1)
    Checkpoints(run).point("best", outcome.progress.best_step)
    compare_average(run, validation, replace(outcome.progress, best=best), log_file)
    assert run.checkpoint("best").name == ("average" if wins else f"step_{outcome.progress.best_step:08d}")
    told = "the average is now 'best'" if wins else "the checkpoint stays 'best'"
    assert log(folder / "run").splitlines()[-1].endswith(f"of the best checkpoint {best:.4f}: {told}")
    # going on, the steps are what is best again, until there is another average
    assert pairs(folder, 14, measure=measure).run.checkpoint("best").name.startswith("step_")
