"""Recipes: every mistake is named, and what is written down can be read again."""

import tomllib
from pathlib import Path

import pytest
import tomli_w

from clearhead.errors import InputError
from clearhead.training.config import (
    MAY_CHANGE,
    RECIPES,
    TrainingSettings,
    flat,
    load_recipe,
    refuse_changes,
)

NAMES = sorted(path.stem for path in RECIPES.glob("*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_packaged_recipe_can_be_dumped_and_read_back(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    path = tmp_path / "dumped.toml"
    path.write_text(tomli_w.dumps(recipe.to_dict()))
    assert load_recipe(str(path)) == recipe


@pytest.mark.parametrize("name", NAMES)
def test_every_packaged_recipe_begins_by_saying_what_it_is(name: str) -> None:
    assert (RECIPES / f"{name}.toml").read_text().startswith(f"# {name}: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.stepz=3", r"copy\.toml: unknown key 'training\.stepz'; did you mean 'steps'\?"),
        ("trainning.steps=3", r"unknown key 'trainning'; did you mean 'training'\?"),
        ("training.steps=many", r"training\.steps must be a whole number, not 'many'"),
        ("training.steps=1.5", r"training\.steps must be a whole number, not 1\.5"),
        ("training.steps=0", r"training\.steps must be at least 1, not 0"),
        ("training.clip=-1", r"training\.clip must not be negative, not -1"),
        ("training.schedule=linear", r"'linear' is not one of 'noam', 'cosine', 'constant'"),
        ("training.factor=1", r"training\.factor = 1\.0 and training\.peak = .*: give one of them"),
        ("training.weight_decay=0.1", r"weight_decay needs training\.optimizer"),
        ("data.tsak=sort", r"unknown key 'data\.tsak'; did you mean 'task'\?"),
        ("decoding.beam=2", r"unknown key 'decoding\.beam'; did you mean 'beam_size'\?"),
        ("training", r"--set wants key=value, .*; found 'training'"),
    ],
)
def test_mistakes_are_named_with_what_would_be_right(change: str, message: str) -> None:
    changes = [change]
    if "factor" in change:
        changes += ["training.peak=0.1", "training.schedule=noam"]
    with pytest.raises(InputError, match=message):
        load_recipe("copy", changes)


def test_an_unknown_recipe_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="no recipe 'copi'; did you mean 'copy'"):
        load_recipe("copi")
    with pytest.raises(InputError, match=r"cannot read nowhere\.toml: No such file or directory"):
        load_recipe("nowhere.toml")


def test_paths_are_seen_from_the_recipe_and_on_the_command_line_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").mkdir()
    path = tmp_path / "recipes" / "mine.toml"
    path.write_text('[data]\nsource = "a.en"\ntarget = "$CLEARHEAD_DATA/a.de"\n')
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(str(path), ["data.validation_source= b.en", "data.validation_target=/abs/b.de"])
    assert recipe.data.source == str(tmp_path / "recipes" / "a.en")
    assert recipe.data.target == "$CLEARHEAD_DATA/a.de"
    assert recipe.data.validation_source == str(tmp_path / "b.en")
    assert recipe.data.validation_target == "/abs/b.de"
    text = load_recipe("shakespeare", ['data.text=["a/*.txt", "~/b.txt"]']).data.text
    assert text == (str(tmp_path / "a" / "*.txt"), "~/b.txt")


def test_a_model_of_another_kind_than_the_data_is_refused() -> None:
    recipe = load_recipe("copy", ["model.preset=gpt2"])
    with pytest.raises(InputError, match="kind 'decoder', but its data are for one of kind 'encoder-decoder'"):
        recipe.model_config("encoder-decoder", {}, 24)
    recipe = load_recipe("copy", ["model.vocab_size=10"])
    with pytest.raises(InputError, match=r"model\.vocab_size = 10, but the tokenizer has 24 tokens"):
        recipe.model_config("encoder-decoder", {}, 24)
    recipe = load_recipe("copy", ["model.d_modle=10"])
    with pytest.raises(InputError, match="model: unknown key 'd_modle'; did you mean 'd_model'"):
        recipe.model_config("encoder-decoder", {}, 24)


def test_a_resumed_run_keeps_its_settings() -> None:
    old = load_recipe("copy").to_dict()
    refuse_changes(old, load_recipe("copy", ["training.steps=2000", "training.log_every=1"]).to_dict(), Path("runs/a"))
    with pytest.raises(InputError, match=r"runs/a was begun with training\.seed = 1, now it is 2"):
        refuse_changes(old, load_recipe("copy", ["training.seed=2"]).to_dict(), Path("runs/a"))
    with pytest.raises(InputError, match=r"begun with model\.heads = unset, now it is 2"):
        refuse_changes(old, load_recipe("copy", ["model.heads=2"]).to_dict(), Path("runs/a"))


def test_what_may_change_exists() -> None:
    known = {f"training.{name}" for name in TrainingSettings.__dataclass_fields__}
    assert known >= MAY_CHANGE


def test_flat_names_every_value_by_its_path() -> None:
    assert flat(tomllib.loads("a = 1\n[b]\nc = 2\n[b.d]\ne = [3]")) == {"a": 1, "b.c": 2, "b.d.e": [3]}
