"""The recipes do what they promise: trained from nothing, decoded by the real search, on data they have not seen."""

import math
from collections import Counter
from pathlib import Path

import pytest

from clearhead.decoding.load import load
from clearhead.training.config import load_recipe
from clearhead.training.session import Outcome, train


def trained(name: str, folder: Path, *changes: str) -> Outcome:
    return train(load_recipe(name, ["training.threads=1", "training.samples=0", *changes]), folder, quiet=True)


def exact(outcome: Outcome, count: int) -> float:
    """The share of held-out sequences that greedy search writes exactly."""
    assert outcome.splits.test is not None
    examples = outcome.splits.test.examples(count)
    answers = load(outcome.run.path).translate([example.source for example in examples], beam_size=1)
    return sum(a.text == e.target for a, e in zip(answers, examples, strict=True)) / len(examples)


@pytest.mark.long
def test_copy_is_learned_without_a_mistake_within_a_thousand_steps(tmp_path: Path) -> None:
    recipe = load_recipe("copy")
    assert recipe.training.steps <= 1000
    assert recipe.model["encoder_layers"] == recipe.model["decoder_layers"] == 2
    outcome = trained("copy", tmp_path)
    assert outcome.tests["test"]["exact"] == 1.0  # all of the held-out sequences, by first choices …
    assert exact(outcome, 200) == 1.0  # … and by search


@pytest.mark.long
@pytest.mark.parametrize("name", ["reverse", "sort"])
def test_reverse_and_sort_are_learned(name: str, tmp_path: Path) -> None:
    outcome = trained(name, tmp_path)
    assert outcome.tests["test"]["exact"] >= 0.99
    assert exact(outcome, 200) >= 0.98


@pytest.mark.long
def test_an_encoder_learns_to_count(tmp_path: Path) -> None:
    outcome = trained("count", tmp_path)
    assert outcome.tests["test"]["token_accuracy"] >= 0.99


@pytest.mark.long
def test_an_encoder_learns_to_fill_in_masks(tmp_path: Path, data: Path) -> None:
    """At least one nat below what the frequencies of characters alone can do."""
    outcome = trained("masked", tmp_path)
    text = (data / "tinyshakespeare" / "input.txt").read_text()
    seen, unseen = Counter(text[: int(0.9 * len(text))]), Counter(text[int(0.9 * len(text)) :])
    total, held_out = seen.total(), unseen.total()
    unigram = -sum(count / held_out * math.log(seen[c] / total) for c, count in unseen.items())
    assert outcome.progress.best is not None
    assert outcome.progress.best <= unigram - 1


@pytest.mark.long
def test_dates_are_read_and_the_heads_look_where_they_should(tmp_path: Path) -> None:
    from clearhead.cli.commands.demo import best_heads

    outcome = trained("dates", tmp_path)
    assert exact(outcome, 1000) >= 0.99
    heads = best_heads(load(tmp_path), outcome.splits.test)  # type: ignore[arg-type]
    assert min(share for _, _, share in heads.values()) >= 0.6
