"""The one source: the course is cut out of `clearhead/transformer.py` and `clearhead/bytepairs.py`.

The solution of an exercise is the text of its parts as it stands there. A stub is the same with the bodies removed:
signature, docstring, shapes and constructors stay. A mistake is the same with a few characters changed.
"""

import ast
import importlib
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from clearhead.learn.exercise import Exercise

TODO = "raise NotImplementedError  # your code here"
ALWAYS = {"transformer": ("math", "torch", "Tensor", "nn"), "bytepairs": ()}


class Source:
    """A Python file as named pieces of text."""

    def __init__(self, name: str) -> None:
        self.module = importlib.import_module(f"clearhead.{name}")
        self.lines = Path(str(self.module.__file__)).read_text(encoding="utf-8").splitlines()
        self.tree = ast.parse("\n".join(self.lines))
        self.nodes: dict[str, ast.stmt] = {}
        self.imports: dict[str, str] = {}  # name: the line that imports it alone
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.nodes[node.name] = node
            elif isinstance(node, ast.Assign):
                for name in names_in(node.targets[0]):
                    self.nodes[name] = node
            elif isinstance(node, ast.Import):
                self.imports |= {alias.asname or alias.name: f"import {alias.name}" for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                self.imports |= {alias.name: f"from {node.module} import {alias.name}" for alias in node.names}

    def text(self, name: str) -> str:
        """A top-level statement, decorators included."""
        return "\n".join(self.lines[first_line(self.nodes[name]) - 1 : self.nodes[name].end_lineno])

    def uses(self, name: str) -> set[str]:
        """The names that a statement reads; those of a function's own arguments are nobody else's."""
        node = self.nodes[name]
        own = {argument.arg for argument in node.args.args} if isinstance(node, ast.FunctionDef) else set()
        return set(names_in(node)) - own


@cache
def source_of(name: str) -> Source:
    return Source(name)


def first_line(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(min([node.lineno, *(decorator.lineno for decorator in decorators)]))  # type: ignore[attr-defined]


def names_in(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.isidentifier():
            yield inner.value


# ---- stubs and solutions -------------------------------------------------------------------------------------------


def body_start(node: ast.FunctionDef) -> tuple[int, bool]:
    """The first line after signature and docstring, and whether there is a docstring."""
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (int(first.end_lineno or 0) + 1, True) if documented else (first.lineno, False)


def cut_function(source: Source, node: ast.FunctionDef, constructor: bool = False) -> list[str]:
    start, _ = body_start(node)
    # comments between the signature and the first statement belong to the body
    head = source.lines[first_line(node) - 1 : start - 1]
    while head and head[-1].strip().startswith("#"):
        head.pop()
    indent = " " * (node.col_offset + 4)
    kept = [f"{indent}super().__init__()"] if constructor else []
    return [*head, *kept, indent + TODO]


def cut_class(source: Source, node: ast.ClassDef, exercise: Exercise) -> list[str]:
    lines: list[str] = []
    last = first_line(node)
    for member in node.body:
        name = f"{node.name}.{getattr(member, 'name', '')}"
        whole = (
            not isinstance(member, ast.FunctionDef)
            or name in exercise.given
            or (member.name == "__init__" and name not in exercise.written)
        )
        lines += source.lines[last - 1 : first_line(member) - 1]
        if whole:
            lines += source.lines[first_line(member) - 1 : member.end_lineno]
        else:
            assert isinstance(member, ast.FunctionDef)
            lines += cut_function(source, member, member.name == "__init__")
        last = int(member.end_lineno or 0) + 1
    return lines


def earlier(exercise: Exercise, course: Mapping[str, Exercise]) -> dict[str, list[str]]:
    """What the parts of an exercise use of those before it: exercise name -> parts."""
    owner = {part: other.name for other in course.values() for part in other.parts if other.source == exercise.source}
    source = source_of(exercise.source)
    used: dict[str, list[str]] = {}
    own = {*exercise.parts, *exercise.helpers}
    for name in sorted(set().union(*(source.uses(part) for part in own)) - own):
        if name in owner:
            used.setdefault(owner[name], []).append(name)
    return dict(sorted(used.items(), key=lambda pair: list(course).index(pair[0])))


def write_file(
    exercise: Exercise,
    course: Mapping[str, Exercise],
    names: Mapping[str, str],  # the file of each exercise
    solved: bool,
    place: tuple[int, int] | None = None,  # its number, and of how many; as in the whole course unless given
) -> str:
    """The learner's file: a stub, or our solution."""
    source = source_of(exercise.source)
    pieces = [*(exercise.helpers if solved else ()), *exercise.parts]
    order = [name for name in source.nodes if name in pieces]  # as it stands in the one file
    text = []
    for name in order:
        node = source.nodes[name]
        if solved:
            text.append(source.text(name))
        elif isinstance(node, ast.ClassDef):
            text.append("\n".join(cut_class(source, node, exercise)))
        else:
            assert isinstance(node, ast.FunctionDef)
            text.append("\n".join(cut_function(source, node)))
    used = set().union(*(source.uses(name) for name in exercise.parts))
    constants = dict.fromkeys(
        source.text(name) for name, node in source.nodes.items() if isinstance(node, ast.Assign) and name in used
    )
    shown = set(names_in(ast.parse("\n\n".join([*constants, *text])))) | set(ALWAYS[exercise.source])
    imports = tidy_imports([line for name, line in source.imports.items() if name in shown])
    local = [
        f"from {names[other].removesuffix('.py')} import {', '.join(parts)}"
        for other, parts in earlier(exercise, course).items()
    ]
    blocks = ["\n".join(imports), "\n".join(local), "\n".join(constants)]
    head = "\n\n".join(block for block in blocks if block)
    number = place or (list(course).index(exercise.name) + 1, len(course))
    return f"{preface(exercise, number)}\n{head}\n\n\n" + "\n\n\n".join(text) + "\n"


def tidy_imports(lines: list[str]) -> list[str]:
    """One line for each module, the standard library first, as the one file has them."""
    gathered: dict[str, list[str]] = {}
    for line in lines:
        module, _, name = line.partition(" import ")
        gathered.setdefault(module, []).extend([name] if name else [])
    tidy = [f"{module} import {', '.join(names)}" if names else module for module, names in gathered.items()]
    torch = next((place for place, line in enumerate(tidy) if "torch" in line), 0)
    return [*tidy[:torch], *([""] if torch else []), *tidy[torch:]]


def preface(exercise: Exercise, place: tuple[int, int]) -> str:
    """The docstring of the learner's file: what is asked, and by which rules."""
    lines = [
        f'"""{place[0]}/{place[1]} {exercise.name}: {exercise.question}',
        "",
        *textwrap.wrap(exercise.about, 110),
        f"In the paper: {exercise.section}." if exercise.section else "",
        "",
        *(["Shapes:"] + [f"    {line.strip()}" for line in exercise.shapes.strip().splitlines()]),
        "",
        *textwrap.wrap(f"You may use {exercise.allowed}.", 110),
        f"Write {', then '.join(exercise.parts)}; then, in this folder:  clearhead learn",
        '"""',
        "",
    ]
    return "\n".join(lines)


# ---- our parts, and ours with a mistake ----------------------------------------------------------------------------


def our_parts(exercise: Exercise) -> dict[str, Any]:
    """Everything the one file defines, by name."""
    return dict(vars(source_of(exercise.source).module))


def change(text: str, changes: tuple[tuple[str, str], ...], what: str) -> str:
    for old, new in changes:
        found = text.count(old)
        if found != 1:
            raise ValueError(f"{what}: {old!r} is found {found} times, wanted once")
        text = text.replace(old, new)
    return text


def with_text(exercise: Exercise, text: str) -> dict[str, Any]:
    """All of the one file's names, and over them what a text defines."""
    names = our_parts(exercise)
    exec(compile(text, f"<a mistake in {exercise.name}>", "exec"), names)
    return names


def find_part(name: str) -> Any:
    """A part of either file."""
    for file in ALWAYS:
        if name in source_of(file).nodes:
            return getattr(source_of(file).module, name)
    raise KeyError(name)


def names_defined(text: str) -> set[str]:
    """Functions, classes and plain names that a text defines at its top."""
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found
