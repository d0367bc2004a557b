"""Which changes `make mutate` makes to a file, and which it leaves out because no test should notice them."""

import ast
import os
import sys
from pathlib import Path
from typing import Any

from bench.mutate.lines import Lines
from bench.mutate.mutants import mutants, mutated
from bench.mutate.server import in_child

SOURCE = '''"""Text for readers: 1 + 1."""

LIMIT = 5


def pick(rows: "list[int]", most: int = 3, *, fair: bool = True) -> int:
    """More text."""
    assert rows, "for the type checker"
    require(most > 0, "most must be positive")
    if not rows or (len(rows) >= most and fair):
        raise InputError("nothing to pick 1 from")
    rows.append(
        rows[1:most]
    )
    log(f"picked {most + 1}")
    return max(rows, key=len) - total({"a": 1, "b": 2}, rows)
'''


def changes(folder: Path) -> list[tuple[int, str, str, str]]:
    (folder / "one.py").write_text(SOURCE)
    return [(one.line, one.operator, one.before, one.after) for one in mutants(folder, ["one.py"])]


def test_each_kind_of_change_is_made_where_it_belongs(tmp_path: Path) -> None:
    found = changes(tmp_path)
    assert [one[1:] for one in found if one[0] == 3] == [("constant", "5", "4"), ("constant", "5", "6")]
    assert {one[1:] for one in found if one[0] == 6} == {
        ("default value", "3", "2"), ("default value", "3", "4"), ("default value", "True", "False"),
    }  # fmt: skip
    assert {one[1:] for one in found if one[0] == 9} == {
        ("dropped statement", 'require(most > 0, "most must be positive")', "pass"),
        ("comparison", ">", ">="), ("constant", "0", "1"),
    }  # fmt: skip
    assert {one[1:] for one in found if one[0] == 10} == {
        ("negation", "not rows or (len(rows) >= most and fair)", "not (not rows or (len(rows) >= most and fair))"),
        ("removed not", "not ", ""), ("and/or", "or", "and"), ("and/or", "and", "or"), ("comparison", ">=", ">"),
    }  # fmt: skip
    assert [one[1:] for one in found if one[0] == 11] == [
        ("dropped statement", 'raise InputError("nothing to pick 1 from")', "pass")
    ]
    assert {one[2:] for one in found if one[1] == "slice end"} == {("1", ""), ("most", ""), ("most", "(most) + 1")}
    last = {one[1:] for one in found if one[0] == 16}
    assert {("min/max", "max", "min"), ("removed keyword", ", key=len", ""), ("arithmetic", "-", "+")} <= last
    assert {("key left out", '"a": 1, ', ""), ("key left out", ', "b": 2', "")} <= last
    assert ("swapped arguments", '{"a": 1, "b": 2}, rows', 'rows, {"a": 1, "b": 2}') in last


def test_what_is_for_readers_and_checkers_stays(tmp_path: Path) -> None:
    """Docstrings, annotations, assertions, f-strings, the words of errors and of the log."""
    assert not {1, 7, 8, 15} & {one[0] for one in changes(tmp_path)}
    assert not [one for one in changes(tmp_path) if "positiveX" in one[3] or "fromX" in one[3] or "list" in one[2]]


def test_a_mutant_is_valid_code_of_as_many_lines_and_has_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(SOURCE)
    found = mutants(tmp_path, ["one.py"])
    assert len({one.key for one in found}) == len(found)
    for one in found:
        text = mutated(SOURCE, one)
        assert text != SOURCE
        assert text.count("\n") == SOURCE.count("\n")
        ast.parse(text)


def test_no_mutant_finds_what_was_made_without_it() -> None:
    """Token stores are kept in a cache, and what is found there runs no code that could be wrong."""

    def work() -> str:
        left = Path(os.environ["CLEARHEAD_CACHE"]) / "left"
        before = left.exists()
        left.touch()
        return f"{before} {left}"

    for _ in range(2):
        before, left = in_child(work, {"seconds": 9})["failed"].split()
        assert before == "False"
        assert not Path(left).exists()


def test_lines_are_known_while_they_are_still_followed(tmp_path: Path) -> None:
    """As after a fixture of a module, before the test that asked for it."""
    path = tmp_path / "one.py"
    path.write_text("def half(number):\n    if number % 2:\n        return None\n    return number // 2\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    lines, before = Lines(f"{tmp_path}{os.sep}", tmp_path / "lines.jsonl"), sys.gettrace()
    sys.settrace(lines.enter)
    try:
        names["half"](4)
        found = lines.met()
    finally:
        sys.settrace(before)
    assert {2, 4} <= found["one.py"]
    assert 3 not in found["one.py"]
