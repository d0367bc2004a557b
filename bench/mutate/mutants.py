"""Every small change that could be made to a source file, each as a replacement of a few characters.

The syntax tree says where a change makes sense, positions lead back to the text, so that a mutant prints as a diff.
Left out is what no test could or should notice: docstrings, annotations, decorators, assertions (they are there for
the type checker), that `strict=` is missing (an assertion, too), whatever stands inside an f-string, the words of
errors and of the log, the order of arguments where it does not matter, `device=` (where the tests run there is only
one), and in the two files that draw how a picture looks: sizes, colours, words, calls for nothing but their effect.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PARTS = ("model", "decoding", "tokenizer", "training", "data")  # of the package that are changed
SWAPS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "&"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
TWINS = [("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("any", "all")]
TWINS += [("floor", "ceil"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("append", "extend")]
OTHER = dict(TWINS) | {right: left for left, right in TWINS}
TOLD = {"log", "warn", "print"}  # calls that only tell something
WORDS = {*TOLD, "require", "InputError"}  # calls whose strings are for people
SYMMETRIC = {"min", "max", "minimum", "maximum"}
UNSEEN = {"strict", "device"}  # keywords
LEFT_OUT = (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal, ast.Pass)
BLOCKS = ("body", "orelse", "finalbody")
DRAWING = ("pictures.py", "plot.py")


@dataclass(frozen=True)
class Mutant:
    """One change: `before` at these offsets of the file becomes `after`."""

    file: str
    start: int
    end: int
    operator: str
    before: str
    after: str
    line: int
    statement: tuple[int, int]  # its first and last line: executed if the change is
    body: tuple[int, int]  # of the function around it, or of the whole file
    at_import: bool  # runs when the module is imported: a default value, a constant, a field of a class
    source: str  # the line as it stands
    number: int = 0  # among the mutants that would otherwise read the same

    @property
    def key(self) -> str:
        """Names the mutant however the lines above it move."""
        return " | ".join((self.file, self.source, self.operator, f"{self.before} -> {self.after}", str(self.number)))


def mutants(root: Path, files: list[str]) -> list[Mutant]:
    """All mutants of these files, in order."""
    return [mutant for file in sorted(files) for mutant in Finder(file, (root / file).read_text()).find()]


def mutated(text: str, mutant: Mutant) -> str:
    """The changed text. It keeps its number of lines, so that the rest of the code stays where it is."""
    assert text[mutant.start : mutant.end] == mutant.before, mutant
    gone = mutant.before.count("\n") - mutant.after.count("\n")
    return text[: mutant.start] + mutant.after + "\n" * gone + text[mutant.end :]


class Finder:
    """Walks the tree of one file. Offsets are in characters, the tree's columns in bytes."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.lines = file, text, text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[Mutant] = []
        self.drawing = Path(file).name in DRAWING

    def find(self) -> list[Mutant]:
        tree = ast.parse(self.text)
        self.block(tree.body, (1, len(self.lines)), True)
        unique, count, seen = [], Counter[str](), set()
        for mutant in sorted(self.found, key=lambda m: (m.start, m.end, m.operator, m.after)):
            if (mutant.start, mutant.end, mutant.after) not in seen and self.compiles(mutant):
                seen.add((mutant.start, mutant.end, mutant.after))
                unique.append(Mutant(**{**mutant.__dict__, "number": count[mutant.key]}))
                count[mutant.key] += 1
        return unique

    def compiles(self, mutant: Mutant) -> bool:
        if mutant.operator not in ("removed keyword", "key left out"):  # a comma may be left over
            return True
        try:
            compile(mutated(self.text, mutant), self.file, "exec")
        except (SyntaxError, ValueError):
            return False
        return True

    # ---- where things are ------------------------------------------------------------------------------------------

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def add(self, span: tuple[int, int], operator: str, after: str) -> None:
        start, end = span
        line = self.text.count("\n", 0, start) + 1
        self.found.append(
            Mutant(
                self.file, start, end, operator, self.text[start:end], after, line,
                self.statement, self.body, self.at_import, self.lines[line - 1].strip(),
            )
        )  # fmt: skip

    def swap_between(self, left: ast.AST, right: ast.AST, kind: ast.AST, operator: str) -> None:
        """Exchange the operator that stands between two operands, whatever brackets and comments are there, too."""
        if type(kind) not in SWAPS:
            return
        old, new = SWAPS[type(kind)]
        start, end = self.span(left)[1], self.span(right)[0]
        if found := re.search(rf"(?<!\w){re.escape(old)}(?!\w)", re.sub(r"#.*", "", self.text[start:end])):
            self.add((start + found.start(), start + found.end()), operator, new)

    # ---- statements ------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], lines: tuple[int, int], at_import: bool) -> None:
        for position, node in enumerate(body):
            docstring = position == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not docstring and not isinstance(node, LEFT_OUT):
                self.body, self.at_import = lines, at_import
                self.statement = (node.lineno, node.end_lineno or node.lineno)
                self.visit_statement(node)

    def visit_statement(self, node: ast.stmt) -> None:
        lines, at_import = self.body, self.at_import
        if isinstance(node, ast.ClassDef):
            self.block(node.body, lines, at_import)
            return
        if isinstance(node, ast.FunctionDef):
            inner = (node.body[0].lineno, node.end_lineno or node.lineno) if at_import else lines
            self.statement = self.body = inner
            for default in (*node.args.defaults, *node.args.kw_defaults):
                self.expressions(default, "default value")
            self.block(node.body, inner, False)
            return
        self.drop(node)
        if isinstance(node, ast.AugAssign):
            self.swap_between(node.target, node.value, node.op, "arithmetic")
        blocks = [getattr(node, name, []) for name in BLOCKS]
        blocks += [part.body for name in ("handlers", "cases") for part in getattr(node, name, [])]
        if any(blocks):  # only the head runs whenever the statement does
            first = next(block for block in blocks if block)[0]
            self.statement = (node.lineno, max(node.lineno, first.lineno - 1))
        for name, value in ast.iter_fields(node):
            if name not in (*BLOCKS, "annotation"):
                for part in value if isinstance(value, list) else [value]:
                    self.expressions(part, "", for_people=isinstance(node, ast.Raise))
        if isinstance(node, ast.If | ast.While):
            self.negate(node.test)
        for block in blocks:
            self.block(block, lines, at_import)

    def drop(self, node: ast.stmt) -> None:
        """Leave a statement out, where what follows still has its names."""
        match node:
            case ast.Expr(value=value) if called(value) in TOLD or self.drawing:
                return
            case ast.Assign(targets=targets) if any(stores_a_name(target) for target in targets):
                return
            case (
                ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break()
            ):
                self.add(self.span(node), "dropped statement", "pass")
            case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
                self.add(self.span(node), "dropped statement", "return None")

    # ---- expressions -----------------------------------------------------------------------------------------------

    def expressions(self, node: object, label: str, for_people: bool = False) -> None:
        if not isinstance(node, ast.expr | ast.comprehension | ast.keyword | ast.withitem):
            return
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Subscript) and name_of(node.value) == "Literal"):
            return
        if isinstance(node, ast.Constant):
            self.constant(node, label, for_people)
            return
        self.operators(node)
        worded = for_people or called(node) in WORDS
        condition = node.args[0] if isinstance(node, ast.Call) and called(node) == "require" else None
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.arguments):
                for default in (*child.defaults, *child.kw_defaults):
                    self.expressions(default, "default value")
            else:
                self.expressions(child, label, worded and child is not condition)
        if isinstance(node, ast.Dict) and len(node.keys) > 1:
            self.leave_out_keys(node)

    def operators(self, node: ast.AST) -> None:
        match node:
            case ast.Compare():
                for left, right, kind in zip([node.left, *node.comparators], node.comparators, node.ops, strict=False):
                    self.swap_between(left, right, kind, "comparison")
            case ast.BinOp():
                self.swap_between(node.left, node.right, node.op, "arithmetic")
            case ast.BoolOp():
                for left, right in pairwise(node.values):
                    self.swap_between(left, right, node.op, "and/or")
            case ast.UnaryOp() if not isinstance(node.op, ast.UAdd):
                sign = {"Not": "removed not", "Invert": "removed ~", "USub": "removed minus"}[type(node.op).__name__]
                self.add((self.span(node)[0], self.span(node.operand)[0]), sign, "")
            case ast.IfExp():
                self.negate(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    self.negate(test)
            case ast.Slice():
                self.slice_ends(node)
            case ast.Call():
                self.call(node)

    def negate(self, test: ast.expr) -> None:
        start, end = self.span(test)
        if not isinstance(test, ast.UnaryOp | ast.Compare):  # those have mutants of their own
            self.add((start, end), "negation", f"not ({self.text[start:end]})")

    def slice_ends(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None:
                start, end = self.span(bound)
                self.add((start, end), "slice end", "")
                if not isinstance(bound, ast.Constant):
                    self.add((start, end), "slice end", f"({self.text[start:end]}) + 1")

    def call(self, node: ast.Call) -> None:
        name = name_of(node.func)
        if name in OTHER:
            end = self.span(node.func)[1]
            self.add((end - len(name), end), "min/max", OTHER[name])
        plain = [arg for arg in node.args if not isinstance(arg, ast.Starred)]
        if len(plain) == len(node.args) and name not in WORDS | SYMMETRIC:
            for left, right in pairwise(plain):
                (a, b), (c, d) = self.span(left), self.span(right)
                if self.text[a:b] != self.text[c:d]:
                    swapped = self.text[c:d] + self.text[b:c] + self.text[a:b]
                    self.add((a, d), "swapped arguments", swapped)
        if self.drawing:
            return
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in UNSEEN:
                self.add(self.with_comma(*self.span(keyword)), "removed keyword", "")

    def with_comma(self, start: int, end: int) -> tuple[int, int]:
        """The span with the comma after it; the last one of a list with the comma before it."""
        if after := re.match(r"\s*,[ \t]*", self.text[end:]):
            return start, end + after.end()
        if before := re.search(r",\s*$", self.text[:start]):
            return before.start(), end
        return start, end

    def leave_out_keys(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                self.add(self.with_comma(self.span(key)[0], self.span(value)[1]), "key left out", "")

    def constant(self, node: ast.Constant, label: str, for_people: bool) -> None:
        value = node.value
        if self.drawing or (for_people and isinstance(value, str)):
            return
        for after in self.other_constants(value):
            self.add(self.span(node), label or "constant", after)

    def other_constants(self, value: object) -> Iterator[str]:
        if isinstance(value, bool):
            yield str(not value)
        elif isinstance(value, int):
            yield from (str(value + 1), str(value - 1)) if value else ("1",)
        elif isinstance(value, float):
            yield repr(value * 2 if value else 1.0)
        elif isinstance(value, str):
            yield repr(value + "X")


def name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def stores_a_name(target: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) for node in ast.walk(target))


def called(node: ast.AST) -> str:
    return name_of(node.func) if isinstance(node, ast.Call) else ""
