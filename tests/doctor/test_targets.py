"""`clearhead doctor` on classes, functions and files: what it prints, what it refuses, and that nothing is thrown."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from clearhead.cli.main import app
from clearhead.errors import InputError

MODEL = """
import not_installed_anywhere
from torch import nn
from tests.doctor import styles

print("a noisy module")


class Part(nn.Module):
    pass


class Model(styles.NamespaceModel):
    def __init__(self, vocab_size, dim, n_heads, n_layers):
        super().__init__(type("Args", (), dict(vocab_size=vocab_size, dim=dim, n_heads=n_heads, n_layers=n_layers,
                                               max_seq_len=640)))
        self.unused = Part()


def plot():
    return not_installed_anywhere.chart()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_file.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("their_file", "spec"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_a_file_alone_is_enough_and_the_description_can_be_kept(folder: Path) -> None:
    probes = ("--only", "future", "--only", "batch", "--json")
    done = run("their_file.py", "--write", "spec.py", *probes)
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)  # what the module prints does not spoil it
    assert told.pop("description") == (folder / "spec.py").read_text()
    assumed = told.pop("assumed")
    assert "not_installed_anywhere is not installed: a stand-in that raises when used took its place" in assumed
    told.pop("not_found_out")
    kept = run("spec.py", *probes)
    assert json.loads(kept.stdout) == told
    # nothing is written over what may have been corrected
    with pytest.raises(InputError, match=r"spec\.py is already there"):
        raise run("their_file.py:Model", "--write", "spec.py").exception  # type: ignore[misc]


def test_text_shows_what_was_assumed_and_the_code(folder: Path) -> None:
    done = run("their_file.py:Model", "--only", "future")
    assert "assumed (nobody described this model; correct what is wrong)" in done.stdout
    assert "\n  spec = doctor.CausalLM(\n" in done.stdout


HEAD = "from torch import nn\nclass Model(nn.Module):\n    def __init__(self, vocab_size):\n"
TABLE = (
    f"{HEAD}        super().__init__()\n        self.e = nn.Embedding(vocab_size, 4)\n    def forward(self, tokens):\n"
)
BROKEN = {
    "raises": "1 / 0",
    "leaves": "import sys; sys.exit(3)",
    "unbuilt": f"{HEAD}        raise OSError('no disk')",
    "uncalled": f"{TABLE}        raise OSError('no luck')",
    "unknown": HEAD.replace("vocab_size", "vocab_size, wizard") + "        pass",
    "pooled": f"{TABLE}        return self.e(tokens).mean(1)",
    "empty": "import torch",
    "two": "from tests.doctor.styles import Tagger\nclass One(Tagger):\n    pass\nclass Two(Tagger):\n    pass\n",
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "importing 'raises.py' raised ZeroDivisionError: division by zero (at raises.py:1: 1 / 0)"),
        ("leaves", "importing 'leaves.py' raised SystemExit: 3 (at leaves.py:1"),
        ("unbuilt", "OSError: no disk (at unbuilt.py:4: raise OSError('no disk'))"),
        ("uncalled", "forward raised OSError: no luck (at uncalled.py:7: raise OSError('no luck'))"),
        ("unknown", "Model needs wizard, and its name does not tell a value; describe how it is built: build="),
        ("pooled", "it gives no (B, S, ...) outputs; add how: forward=lambda model, tokens: ..."),
        ("empty", "empty.py has neither a description nor a model"),
        ("two", "two.py has several models; name one of One, Two: two.py:NAME"),
    ],
)
def test_what_user_code_raises_is_told_with_its_line(folder: Path, name: str, words: str) -> None:
    (folder / f"{name}.py").write_text(BROKEN[name])
    done = run(f"{name}.py")
    assert isinstance(done.exception, InputError), done.exception  # which the command turns into one line and status 2
    assert words in str(done.exception)


def test_a_model_that_raises_while_it_is_examined_gives_no_traceback(folder: Path) -> None:
    (folder / "moody.py").write_text(
        "from clearhead import doctor\nfrom tests.doctor.test_description import Bag\n"
        "def forward(model, tokens):\n    if tokens.size(0) == 2:\n        raise OSError('not two')\n"
        "    return model(tokens)\nspec = doctor.CausalLM(build=Bag, forward=forward)\n"
    )
    done = run("moody.py", "--only", "future")
    assert isinstance(done.exception, InputError | SystemExit)
    assert "forward raised OSError for (2, 11): not two (at " in str(done.exception)
    assert "moody.py:5: raise OSError('not two'))" in str(done.exception)


def test_a_name_without_a_module_is_told_as_it_was_typed(folder: Path) -> None:
    assert "':GPT' names no module; wanted module:name" in str(run(":GPT").exception)


# ---- continuous integration ---------------------------------------------------------------------------------------

CHECKED = """
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.mutants import load, table

spec = describe("decoder", "rotary", load(table()["{bug}"]))
"""
PROBES = ("--only", "future", "--only", "attention")


def test_annotations_name_file_and_line(folder: Path) -> None:
    (folder / "checked.py").write_text(CHECKED.format(bug="6"))
    lines = run("checked.py", *PROBES, "--format", "github").stdout.splitlines()
    assert [line for line in lines if line.startswith("::error file=") and ",line=" in line] == lines
    assert any("title=clearhead doctor%3A attention." in line and "softmax" in line for line in lines)


def test_a_baseline_accepts_what_is_known_and_shrinks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "checked.py").write_text(CHECKED.format(bug="13"))
    assert run("checked.py", *PROBES).exit_code == 1
    assert run("checked.py", *PROBES, "--write-baseline", "known.json").exit_code == 0
    done = run("checked.py", *PROBES, "--baseline", "known.json")
    assert done.exit_code == 0
    assert "accepted by the baseline\n  future.visible" in done.stdout
    # another bug: one finding is new, the old one is gone
    monkeypatch.delitem(sys.modules, "checked", raising=False)
    (folder / "checked.py").write_text(CHECKED.format(bug="6") + "# another size, so that no cached bytecode is used\n")
    done = run("checked.py", *PROBES, "--baseline", "known.json")
    assert done.exit_code == 1
    assert "attention." in done.stdout
    # a probe that did not run says nothing about what it once found
    quiet = run("checked.py", "--only", "attention", "--baseline", "known.json", "--json")
    assert json.loads(quiet.stdout).get("gone", []) == []


def test_strict_counts_warnings(folder: Path) -> None:
    (folder / "warned.py").write_text(
        "from dataclasses import replace\nimport torch\nfrom clearhead.doctor.hosts.describe import describe\n"
        "spec = replace(describe('decoder', 'rotary'),\n"
        "               optimizer=lambda model: torch.optim.AdamW(model.parameters(), weight_decay=0.1))\n"
    )
    assert run("warned.py", "--only", "optimizer").exit_code == 0
    assert run("warned.py", "--only", "optimizer", "--strict").exit_code == 1


@pytest.mark.parametrize("text", ["not json", "[]", '{"accepted": [1]}'])
def test_a_broken_baseline_is_told(folder: Path, text: str) -> None:
    (folder / "checked.py").write_text(CHECKED.format(bug="6"))
    (folder / "known.json").write_text(text)
    with pytest.raises(InputError, match=r"known\.json is no baseline"):
        raise run("checked.py", "--only", "attention", "--baseline", "known.json").exception  # type: ignore[misc]


# ---- pytest -------------------------------------------------------------------------------------------------------


def test_pytest_examines_a_class(folder: Path) -> None:
    (folder / "test_other.py").write_text("def test_other():\n    raise AssertionError\n")
    (folder / "open_gpt.py").write_text("from tests.doctor.test_infer import OpenGPT\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    command += ["-p", "clearhead.doctor.pytest_plugin", "--doctor", "open_gpt.py:OpenGPT"]
    command += ["-k", "future or batch or schedule"]
    found = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=found)
    assert "1 failed, 1 passed, 1 skipped" in done.stdout  # and not the test beside it, which nobody asked for
    assert "future.visible" in done.stdout
    assert "doctor: assumed about open_gpt.py:OpenGPT" in done.stdout


def test_the_plugin_costs_other_runs_nothing() -> None:
    code = "import sys, clearhead.doctor.pytest_plugin; print('torch' in sys.modules, 'pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
