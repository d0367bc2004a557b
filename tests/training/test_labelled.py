"""Training on labels: the labels are part of the run, and the model must fit them and the texts."""

from pathlib import Path
from typing import Any

import pytest

from clearhead.data import DataSettings, TokenizerSettings
from clearhead.data.labelled import Labelled, Row, mark_texts
from clearhead.data.splits import Splits
from clearhead.errors import InputError
from clearhead.model import ModelConfig, configure
from clearhead.tokenizer import Characters
from clearhead.training.config import Recipe
from clearhead.training.distributed import Ranks
from clearhead.training.report import Log
from clearhead.training.session import fit_labels, prepare
from tests.training import small


def test_a_run_keeps_its_labels_where_later_data_lack_one(tmp_path: Path) -> None:
    def begin(*labels: str) -> tuple[Splits, ModelConfig]:
        data = tmp_path / f"{len(labels)}.tsv"
        data.write_text("".join(f"{'abc'[n % 3] * (n % 5 + 1)}\t{labels[n % len(labels)]}\n" for n in range(60)))
        model = {key: value for key, value in small.MODEL.items() if key != "decoder_layers"}
        recipe = Recipe(DataSettings(labelled=str(data)), model, TokenizerSettings(kind="characters"))
        return prepare(recipe, tmp_path / "run", Ranks(), Log(None, quiet=True))[:2]

    (tmp_path / "run").mkdir()
    begin("left", "middle", "right")
    splits, config = begin("left", "right")
    assert isinstance(splits.train, Labelled)
    assert splits.train.labels == ("left", "middle", "right")
    assert config.head.classes == 3


@pytest.mark.parametrize(
    ("second", "changes", "said"),
    [
        (None, {}, ""),
        ("a", {"segments": 2}, ""),
        ("a", {}, r"two texts need model\.embedding\.segments = 2, not 0"),
        (None, {"max_length": 6}, ""),
        (None, {"max_length": 5}, r"a text has 6 tokens, model\.positions\.max_length = 5"),
        (None, {"classes": 3}, r"the data have 2 labels, model\.head\.classes = 3"),
        (None, {"kind": "tokens"}, r"the data have 2 labels: model\.head\.kind must be 'pooled', .*, not 'tokens'"),
    ],
)
def test_a_model_that_cannot_tell_the_labels_of_these_texts_is_refused(
    second: str | None, changes: dict[str, Any], said: str
) -> None:
    tokenizer = Characters("ab")
    mark_texts(tokenizer)
    rows = [Row(1, "abab", second, "x"), Row(2, "b", second, "y")]
    data = Labelled.of(rows, tokenizer, ["x", "y"], 20, "a.tsv")
    config = configure(
        "tiny",
        kind="encoder",
        vocab_size=tokenizer.size,
        head={"kind": changes.get("kind", "pooled"), "classes": changes.get("classes", 2)},
        positions={"kind": "learned", "max_length": changes.get("max_length", 20)},
        embedding={"segments": changes.get("segments", 0)},
    )
    if not said:
        fit_labels(data, config)
        return
    with pytest.raises(InputError, match=said):
        fit_labels(data, config)
