"""`clearhead data`: what is prepared is found, what is shown is what the model gets."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    rows = "".join(f"the number {i}\tdie Zahl {i}\n" for i in range(40)) + "one\t\n" + "soft\u00adly\tlei\u00adse\n" * 3
    (tmp_path / "pairs.tsv").write_text(rows)
    path = tmp_path / "mine.toml"
    path.write_text('[data]\ntsv = "pairs.tsv"\n[tokenizer]\nkind = "characters"\n')
    return path


def test_prepare_says_what_there_is_and_what_was_skipped(recipe: Path, call: Call) -> None:
    status, out, err = call("data", "prepare", recipe)
    assert status == 0, err
    lines = out.decode().splitlines()
    assert lines[:2] == ["train: 39 examples", "validation: 4 examples"]
    assert lines[2] == f"train: skipped 1: empty on one side (first: {recipe.parent / 'pairs.tsv'}, line 41)"
    assert call("data", "prepare", recipe, "--verify")[:2] == (0, out)


def test_look_shows_examples_and_what_is_odd(recipe: Path, call: Call) -> None:
    status, out, err = call("data", "look", recipe, "--examples", 1)
    assert status == 0, err
    text = out.decode()
    assert "source pieces  t h e ␣ n u m b e r ␣ 0 </s>" in text
    assert "the same as one before: 2" in text
    assert "odd: U+00AD invisible, in " in text
    status, out, err = call("data", "look", recipe, "--json")
    assert status == 0, err
    parts = [json.loads(line) for line in out.decode().splitlines()]
    assert [part["part"] for part in parts] == ["train", "validation"]
    assert parts[0]["examples"] == 39
    assert parts[0]["lengths"]["source"][-1] == len("the number 39") + 1
    status, out, err = call("data", "look", recipe, "--set", "data.tsv=nowhere.tsv")
    assert status == 2
    assert "nowhere.tsv: no such file" in err
    assert err.count("\n") == 1


def test_a_run_without_its_settings_is_named(recipe: Path, call: Call) -> None:
    (recipe.parent / "run").mkdir()
    (recipe.parent / "run" / "config.toml").symlink_to("nowhere")
    status, _, err = call("data", "look", recipe.parent / "run")
    assert status == 2
    assert f"{recipe.parent / 'run'} is a folder without a config.toml" in err
