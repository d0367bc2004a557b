"""A plain installation, without extras: every command's help, and a recipe from training to an answer.

The environment that runs the tests has more in it than users have. So the commands run in a process of their own that
finds only the standard library, clearhead and what its run-time dependencies pull in; or, in the long test, in an
environment into which nothing but the wheel was installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import clearhead
from tests.cli.test_main import COMMANDS, HELP_OF_ALL
from tests.test_design import PROJECT, ROOT

# What is installed, but not for clearhead, does not exist for this process: it is absent, as in a plain environment.
WITHOUT = """
import importlib.machinery, json, sys

class Plain(importlib.machinery.PathFinder):
    absent = set(json.loads(sys.argv.pop(1)))

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in cls.absent else super().find_spec(name, path, target)

sys.meta_path[:] = [Plain if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""

COMMANDS_IN_TURN = """
from clearhead.cli.main import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["clearhead", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""


def in_an_index(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def distributions(requirements: Iterable[str]) -> set[str]:
    """These and all that they require on this machine, an extra of theirs only where it is asked for."""
    seen: set[tuple[str, str]] = set()  # a distribution, and one of its extras or ""
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        for one in {(in_an_index(wanted.name), extra) for extra in ("", *wanted.extras)} - seen:
            seen.add(one)
            try:
                below = map(Requirement, requires(wanted.name) or ())
            except PackageNotFoundError:  # required, but not by this build: torch for CPUs comes without CUDA
                continue
            waiting += [need for need in below if need.marker is None or need.marker.evaluate({"extra": one[1]})]
    return {name for name, _ in seen}


def without_extras() -> list[str]:
    """Modules that are installed here and would not be by `pip install clearhead`."""
    plain = {"clearhead", *distributions(PROJECT["dependencies"])}
    return [module for module, owners in packages_distributions().items() if not plain & set(map(in_an_index, owners))]


def plainly(script: str, argument: object) -> str:
    """Run Python code where only a plain installation can be imported; what it wrote to stdout."""
    words = [json.dumps(without_extras()), json.dumps(argument)]
    done = subprocess.run([sys.executable, "-c", WITHOUT + script, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def short_recipe(run: Path, source: Path) -> list[list[str]]:
    """The commands that train a few steps and answer one line."""
    source.write_text("1 2 3\n")
    changes = ["training.steps=6", "data.examples=300", "data.held_out=20"]
    train = ["train", "copy", "--run", str(run), *(word for change in changes for word in ("--set", change))]
    return [train, ["translate", str(run), str(source)]]


def test_what_the_tests_bring_along_is_absent() -> None:
    """Or the two tests below would prove nothing."""
    names = ["pytest", "hypothesis", "transformers", "tokenizers", "tiktoken", "torch", "rich", "clearhead"]
    look = "from importlib.util import find_spec\nprint([n for n in json.loads(sys.argv[1]) if find_spec(n)])"
    assert plainly(look, names) == "['torch', 'rich', 'clearhead']\n"


def test_help_needs_no_extra() -> None:
    plainly(HELP_OF_ALL, [list(path) for path in COMMANDS])


def test_a_recipe_needs_no_extra(tmp_path: Path) -> None:
    answered = plainly(COMMANDS_IN_TURN, short_recipe(tmp_path / "run", tmp_path / "line"))
    assert re.fullmatch(r"[\d ]*\n", answered), answered


@pytest.mark.long
def test_the_wheel_works_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """Built, installed with the versions of constraints.txt, and used from another folder."""

    def run(*words: object) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([*map(str, words)], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    source = tmp_path / "source"
    shutil.copytree(ROOT / "clearhead", source / "clearhead", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    venv.create(tmp_path / "plain", with_pip=True)
    scripts = tmp_path / "plain" / ("Scripts" if os.name == "nt" else "bin")
    python, pip = scripts / "python", ["-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(python, *pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob(f"clearhead-{clearhead.__version__}-*.whl")
    run(python, *pip, "install", "--constraint", ROOT / "constraints.txt", wheel)
    for path in COMMANDS:
        assert "Usage" in run(scripts / "clearhead", *path, "--help")
    train, translate = short_recipe(tmp_path / "run", tmp_path / "line")
    run(scripts / "clearhead", *train)
    assert re.fullmatch(r"[\d ]*\n", run(scripts / "clearhead", *translate))
