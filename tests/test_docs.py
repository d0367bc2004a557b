"""The pages say only what is there: files, tests, commands with their options, make targets and headings exist."""

import ast
import itertools
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearhead.cli.main import app
from tests.cli.test_main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS = ("clearhead", "tests", "docs", "bench", "recipes", "examples")


@cache
def names_in(path: Path) -> set[str]:
    """The names of a file's test functions, and of its test methods with their class."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """Every `clearhead …` line of the page's code blocks and code spans, as words; a pipe or a comment ends it."""
    text = page.read_text()
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)).replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ ") for line in blocks.splitlines()]
    lines += [span.group(1) for span in re.finditer(r"`(clearhead [^`]*)`", prose(page))]
    found: list[list[str]] = []
    for line in lines:
        for part in line.split(" | "):
            words = shlex.split(part.removeprefix(".venv/bin/"), comments=True) if "clearhead " in part else []
            if words[:1] == ["clearhead"]:  # `tokenizer encode|decode` stands for both
                found += map(list, itertools.product(*(word.split("|") for word in words)))
    return found


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), flags=re.MULTILINE)
            assert heading in map(anchor, headings), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_tests_exist(page: Path) -> None:
    """`clearhead/model/norm.py` and `tests/model/test_norm.py::test_twins_agree`, wherever they stand."""
    for span in re.findall(r"`([^`\n]+)`", page.read_text()):
        path, _, test = span.partition("::")
        if not re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./-]*", path) or "NAME" in path:  # NAME is for you to choose
            continue
        assert (ROOT / path).exists() or (ROOT / "clearhead" / path).exists(), f"{page.name} names {span}"
        if test:
            assert test.split("[")[0] in names_in(ROOT / path), f"{page.name} names {span}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist_with_their_options(page: Path) -> None:
    for words in commands(page):
        path: tuple[str, ...] = ()
        for word in words[1:]:
            if (*path, word) not in COMMANDS:
                break
            path = (*path, word)
        shown = shlex.join(words)
        leads_on = hasattr(COMMANDS[path], "commands")
        rest = words[len(path) + 1 :]
        assert not leads_on or all(word.startswith("-") or word == "…" for word in rest), f"{page.name}: {shown}"
        known = {"--help", "-h"} | {name for parameter in COMMANDS[path].params for name in parameter.opts}
        known |= {name for parameter in COMMANDS[path].params for name in parameter.secondary_opts}
        for word in rest:
            if re.match(r"--?[a-zA-Z]", word):
                assert word.split("=")[0] in known, f"{page.name}: {shown} has no {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^|\$ )make ([a-z][\w-]*)", page.read_text(), flags=re.MULTILINE):
        bench = target.removeprefix("bench-")
        known = re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
        modules = (ROOT / "bench" / f"{bench}.py", ROOT / "bench" / bench / "__main__.py")
        measured = bench != target and any(path.exists() for path in modules)
        assert known or measured, f"{page.name}: make {target}"


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    for name in {path[0] for path in COMMANDS if path}:
        assert f"clearhead {name}" in readme, f"README.md does not name `clearhead {name}`"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_the_readme_s_python_runs() -> None:
    programs = blocks(ROOT / "README.md", "python")
    assert programs
    for program in programs:
        exec(compile(program, "README.md", "exec"), {})


def test_the_readme_s_pass_is_the_code() -> None:
    files = [ROOT / "clearhead" / "model" / name for name in ("transformer.py", "layer.py")]
    quoted = blocks(ROOT / "README.md", "py")
    assert len(quoted) == len(files)
    for path, lines in zip(files, quoted, strict=True):
        assert lines in path.read_text(), f"README.md quotes {path.name} otherwise than it stands there"


def test_nothing_is_used_before_it_was_read() -> None:
    """In the order of the README, which is that of clearhead/model/__init__.py, and has every file of the folder."""
    folder = ROOT / "clearhead" / "model"
    order = re.findall(r"\]\(clearhead/model/(\w+)\.py\)", prose(ROOT / "README.md").partition("Read in this order")[2])
    assert sorted(order) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    told = (folder / "__init__.py").read_text().split('"""')[1].partition("look things up in:")[2]
    assert [name for name in re.split(r"[\s·]+", told) if name] == order
    for place, name in enumerate(order):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clearhead.model."):
                used = str(node.module).split(".")[2]
                assert used in order[:place], f"{name}.py uses {used}.py, which comes later in the README"


def test_the_readme_s_table_is_what_the_command_prints() -> None:
    result = CliRunner().invoke(app, ["shapes"])
    printed = {line.rstrip() for line in result.stdout.splitlines()}
    (table,) = blocks(ROOT / "README.md", "text")
    assert [line for line in table.splitlines() if line not in printed] == []
