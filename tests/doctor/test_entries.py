"""The two other ways in: the command line and pytest."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from clearhead.cli.main import app
from clearhead.errors import InputError

MODEL = """
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.mutants import load, table

healthy = describe("decoder", "rotary")
broken = describe("decoder", "rotary", load(table()["13"]))
lazy = lambda: healthy
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_model", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_healthy_is_0_and_ill_is_1(folder: Path) -> None:
    assert run("their_model:healthy", "--only", "future").exit_code == 0
    assert run("their_model:lazy", "--only", "future").exit_code == 0
    done = run("their_model:broken", "--only", "future", "--only", "prefix")
    assert done.exit_code == 1
    assert "future.visible" in done.stdout
    assert "prefix.differs" in done.stdout


def test_json_goes_to_stdout_alone(folder: Path) -> None:
    done = run("their_model:broken", "--only", "future", "--json")
    assert json.loads(done.stdout)["findings"][0]["id"] == "future.visible"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("their_model", "has several descriptions (healthy, broken); name one: their_model:healthy"),
        ("nowhere:spec", "cannot import 'nowhere'"),
        ("their_model:spec", "their_model has no 'spec'"),
        ("their_model:number", "is a int, wanted a description (doctor.CausalLM"),
        ("torch.nn:Linear", "Linear needs in_features, and its name does not tell a value"),
    ],
)
def test_bad_targets_are_told(folder: Path, target: str, words: str) -> None:
    done = run(target)
    assert isinstance(done.exception, InputError)  # which the command turns into one line and status 2
    assert words in str(done.exception)


def test_torch_transformer_needs_no_description(folder: Path) -> None:
    assert run("torch.nn:Transformer", "--only", "future", "--only", "padding").exit_code == 0


def test_pytest_gets_one_item_a_probe(folder: Path) -> None:
    (folder / "test_theirs.py").write_text(
        "from clearhead import doctor\nimport their_model\n"
        "test_healthy = doctor.parametrize(their_model.healthy, only=['future', 'prefix', 'schedule'])\n"
        "test_broken = doctor.parametrize(their_model.broken, only=['future', 'batch'])\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir", str(folder), "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert "1 failed, 3 passed, 1 skipped" in done.stdout
    assert "changing token" in done.stdout
    assert "no learning_rate() described" in done.stdout
