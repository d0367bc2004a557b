"""A trained run in the four other programs: the same tokens of 1,000 dates, log-probabilities within 1e-4."""

from pathlib import Path

import pytest

from bench.export import compare, held_out_dates
from clearhead.decoding.load import load
from clearhead.training import load_recipe, train
from tests.interop.export.runs import TOLERANCE


@pytest.mark.long
def test_a_trained_run_gives_the_same_in_the_other_programs(tmp_path: Path) -> None:
    train(load_recipe("dates", ["training.steps=150", "training.validate_every=150"]), tmp_path / "run")
    texts = held_out_dates(load(tmp_path / "run"), 1000)
    for found in compare(tmp_path / "run", texts, tmp_path / "out"):
        assert (found.program, found.same, found.refused) == (found.program, 1000, "")
        assert found.furthest < TOLERANCE
