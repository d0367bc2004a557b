"""The rules of the house that a reader relies on and a change breaks without noticing.

Who may import whom, how long files may grow, what is written here instead of being imported, and what an installation
pulls in. All of it is read off the source, imports inside functions included. Where a rule stands in the way of
something better, change the rule here, in the same commit.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "clearhead"
SOURCES = sorted(PACKAGE.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(path: Path) -> str:
    """For messages: clearhead/model/norm.py, wherever the checkout lies."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The full name of everything that is imported inside a node, and the line."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            yield from ((alias.name, inner.lineno) for alias in inner.names)
        elif isinstance(inner, ast.ImportFrom):
            assert inner.level == 0, f"line {inner.lineno}: write the full name, clearhead.…, not a relative one"
            yield from ((f"{inner.module}.{alias.name}", inner.lineno) for alias in inner.names)


# ---- who imports whom ----------------------------------------------------------------------------------------------

ON_TOP = {
    "lab",
    "learn",
    "explore",
    "serve",
    "cli",
}  # they use all the others and nothing uses them, but cli uses them all
PARTS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
MAY_USE: dict[str, set[str]] = {
    "model": set(),
    "tokenizer": set(),
    "doctor": set(),  # works on anyone's models, so it knows nothing of ours
    "data": {"model", "tokenizer"},
    "training": {"model", "tokenizer", "data"},
    "decoding": {"model", "tokenizer", "data"},
    "cost": {"model"},
    "interop": {"model", "tokenizer", "data", "training", "decoding", "doctor"},  # describes our models to the doctor
    **dict.fromkeys(ON_TOP, PARTS - ON_TOP),
    "serve": PARTS - ON_TOP | {"explore"},  # shows its page, and is guarded as it is
    "cli": PARTS,
}


def uses(path: Path) -> Iterator[tuple[str, str]]:
    """Parts of clearhead that a file needs and how it comes to: `model`, "line 3". Modules that lie beside the parts
    (errors, run, …) are free to all, but what they import counts as imported by whoever imports them."""
    for name, line in imported(tree(path)):
        words = [*name.split("."), "", ""]
        if words[0] != "clearhead":
            continue
        beside = PACKAGE / f"{words[1]}.py"
        if words[1] in PARTS:
            yield words[1], f"line {line}"
        elif beside.exists():
            yield from ((part, f"line {line}, through {beside.name}") for part, _ in uses(beside))
        else:  # `import clearhead` loads nothing more, and a name of its own would hide where it comes from
            assert words[1] in ("", "__version__"), (
                f"{name_of(path)}, line {line}: {name} is for users; inside the package, import it from where it lives"
            )


@pytest.mark.parametrize("part", sorted(PARTS))
def test_imports_point_one_way(part: str) -> None:
    assert part in MAY_USE, f"clearhead/{part} is new: say in MAY_USE which parts it builds on"
    wrong = [
        f"{name_of(path)} imports clearhead.{other} ({where})"
        for path in sorted((PACKAGE / part).rglob("*.py"))
        for other, where in uses(path)
        if other not in MAY_USE[part] | {part}
    ]
    allowed = ", ".join(sorted(MAY_USE[part])) or "none of the other parts"
    assert not wrong, f"{part} may build on {allowed}; move what is shared down, or pass it in:\n" + "\n".join(wrong)


def test_modules_beside_the_parts_build_on_the_lowest_only() -> None:
    """They are free to all, so what they need is needed everywhere. `__init__` and `__main__` only hand over."""
    for path in sorted(PACKAGE.glob("[!_]*.py")):
        wrong = {part for part, _ in uses(path)} - {"model", "tokenizer"}
        assert not wrong, f"{name_of(path)} uses {', '.join(sorted(wrong))}: it belongs there, or higher up"


LAZY = [path for path in SOURCES if path.name == "__init__.py" and "_HOME" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", LAZY, ids=name_of)
def test_names_loaded_on_first_use_are_known_to_type_checkers(path: Path) -> None:
    """A package that loads its names lazily (`_HOME`) lists them under `if TYPE_CHECKING:` too."""
    package = ".".join(path.parent.relative_to(ROOT).parts)
    home = import_module(package)._HOME
    lazily = {f"{package}.{name}.{key}" for key, name in home.items()}
    checked = [
        node for node in tree(path).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    shown = {name for node in checked for name, _ in imported(node)}
    assert shown == lazily, f"{name_of(path)}: _HOME and the imports under TYPE_CHECKING differ"


# ---- how long files grow -------------------------------------------------------------------------------------------

WHOLE = {
    "clearhead/doctor/mutants/decoder.py",  # rows of data, one planted bug after the other: nothing to divide
    "clearhead/transformer.py",  # the Transformer in one file, which is its point
}


def test_the_model_stays_small_enough_to_read() -> None:
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in (PACKAGE / "model").glob("*.py"))
    assert lines < 1900, f"clearhead/model has {lines} lines: let a new choice pay for itself by what it removes"


def test_files_are_short() -> None:
    everything = [path for folder in ("clearhead", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    lengths = {name_of(path): path.read_text(encoding="utf-8").count("\n") for path in everything}
    long = {name: lines for name, lines in lengths.items() if lines >= 400 and name not in WHOLE}
    assert not long, f"something in these files asks for a file of its own: {long}"


# ---- what is written here, and what is not -------------------------------------------------------------------------

LAYERS = r"(torch\.)?nn\.(modules\.\w+\.)?(Transformer\w*|MultiheadAttention|LayerNorm|RMSNorm)"
SCHEDULES = r"(torch\.)?optim\.lr_scheduler(\.\w+)?"
PICKLES = r"pickle(\.\w+)?|torch\.(load|save)"
STAYS_OUTSIDE = {
    LAYERS: "clearhead/model has its own",
    SCHEDULES: "clearhead/training/schedule.py is the schedule",
    PICKLES: "a run is TOML, JSON and safetensors: nothing that runs code when it is read",
}


def names_in(path: Path) -> Iterator[tuple[str, int]]:
    """Imported names, and dotted ones as they are written."""
    yield from imported(tree(path))
    yield from ((ast.unparse(node), node.lineno) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute))


@pytest.mark.parametrize(("pattern", "instead"), STAYS_OUTSIDE.items(), ids=["layers", "schedules", "pickles"])
def test_what_this_project_is_there_to_show_is_not_imported(pattern: str, instead: str) -> None:
    wrong = [
        f"{name_of(path)}, line {line}: {name}"
        for path in SOURCES
        # the doctor's patients are models as other people write them, with PyTorch's norms
        if not (pattern == LAYERS and path.is_relative_to(PACKAGE / "doctor" / "hosts"))
        for name, line in names_in(path)
        if re.fullmatch(pattern, name)
    ]
    assert not wrong, f"{instead}:\n" + "\n".join(wrong)


# ---- what an installation pulls in ---------------------------------------------------------------------------------

RUN_TIME = {"torch", "numpy", "safetensors", "regex", "rich", "typer", "babel", "sacrebleu", "matplotlib"}
WELCOME = {"tomli-w"}  # the standard library reads TOML and does not write it


def distribution(requirement: str) -> str:
    """ "Babel>=2.14" is babel."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def module(distribution: str) -> str:
    return distribution.replace("-", "_")


def test_an_installation_pulls_in_what_was_agreed_and_nothing_else() -> None:
    found = {distribution(requirement) for requirement in PROJECT["dependencies"]}
    assert found - WELCOME == RUN_TIME, (
        "dependencies of a plain installation are a promise; what only some users need comes as an extra"
    )


def test_the_plain_code_imports_no_extra() -> None:
    """Importing a module needs run-time dependencies only; inside a function, an extra may be asked for by name."""
    extras = {distribution(one) for group in PROJECT["optional-dependencies"].values() for one in group}
    plain = {"clearhead", *map(module, RUN_TIME | WELCOME), *sys.stdlib_module_names}
    wrong = []
    for path in SOURCES:
        functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = {found for node in functions for found in imported(node)}
        for name, line in imported(tree(path)):
            root = name.split(".")[0]
            if root not in plain and not ((name, line) in inside and root in map(module, extras)):
                wrong.append(f"{name_of(path)}, line {line}: {name}")
    assert not wrong, (
        "not a run-time dependency (an extra is imported inside the function that needs it):\n" + "\n".join(wrong)
    )
