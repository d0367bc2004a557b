"""Recipes: every mistake is named, and what is written down can be read again."""

from pathlib import Path

import pytest
import tomli_w

from clearhead.errors import InputError
from clearhead.training.config import (
    RECIPES,
    TrainingSettings,
    load_recipe,
)
from clearhead.training.session import train

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


OTHERS = {  # of PyTorch, transformers, Lightning and nanoGPT
    "peak": "lr learning_rate max_lr",
    "steps": "epochs num_epochs max_epochs num_train_epochs max_steps max_iters",
    "max_tokens": "batch_size batch per_device_train_batch_size",
    "clip": "grad_clip max_grad_norm clip_norm",
    "warmup": "warmup_steps num_warmup_steps warmup_iters",
    "accumulate": "gradient_accumulation_steps grad_accum",
    "validate_every": "eval_interval eval_every eval_steps",
    "patience": "early_stopping",
}


@pytest.mark.parametrize(("key", "wanted"), [(key, ours) for ours, keys in OTHERS.items() for key in keys.split()])
def test_what_others_call_a_setting_is_answered_with_our_name(key: str, wanted: str) -> None:
    with pytest.raises(InputError, match=rf"unknown key 'training\.{key}'; here it is '{wanted}'"):
        load_recipe("copy", [f"training.{key}=1"])


def test_every_name_that_a_hint_gives_is_one_of_ours() -> None:
    hinted = {hint.split("'")[1] for hint in TrainingSettings.ELSEWHERE.values()}
    assert hinted <= set(TrainingSettings.__dataclass_fields__)
    assert not set(TrainingSettings.ELSEWHERE) & set(TrainingSettings.__dataclass_fields__)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"warmup": 101}, "training.warmup = 101 is more than training.steps = 100"),
        ({"warmup": 10, "cooldown": 101}, "training.cooldown = 101 is more than training.steps = 100"),
        ({"warmup": 60, "cooldown": 60}, "the rate never reaches its peak"),
        ({"warmup": 40, "cooldown": 60}, ""),
        ({"warmup": 100}, ""),
    ],
)
def test_a_warmup_or_cooldown_beyond_the_steps_is_told(changes: dict[str, int], said: str) -> None:
    odd = TrainingSettings(steps=100, **changes).oddities()  # type: ignore[arg-type]
    assert [said in line for line in odd] == ([True] if said else [])


def test_a_tokenizer_is_looked_for_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    path = tmp_path / "recipes" / "mine.toml"
    path.write_text('[data]\nsource = "a"\ntarget = "b"\n[tokenizer]\npath = "t.json"\napart = true\n')
    monkeypatch.chdir(tmp_path)
    assert load_recipe(str(path)).tokenizer.path == str(tmp_path / "recipes" / "t.json")
    changed = load_recipe(str(path), ["tokenizer.path=u.json", "tokenizer.source_path=~/v.json"])
    assert (changed.tokenizer.path, changed.tokenizer.source_path) == (str(tmp_path / "u.json"), "~/v.json")


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        ('source = "a"\ntarget = "b"', 'preset = "gpt2"'),
        ('text = "a"', "d_modle = 3"),
        ('text = "a"', "heads = 3\nd_model = 16"),
        ('task = "masked"\ntext = "a"', 'head = { kind = "vocabulary" }'),
        ('task = "count"', "encoder_layers = 0"),
    ],
)
def test_the_model_is_checked_before_any_text_is_read(data: str, wrong: str, tmp_path: Path) -> None:
    """The files do not exist: whoever reads them first would say so."""
    path = tmp_path / "mine.toml"
    path.write_text(f"[data]\n{data}\n[model]\n{wrong}\n")
    with pytest.raises(InputError, match="model"):
        train(load_recipe(str(path)), tmp_path / "run", quiet=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_check_before_reading_refuses_no_packaged_recipe(name: str) -> None:
    load_recipe(name).check_model()
