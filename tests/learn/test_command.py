"""`clearhead learn` as a learner meets it; the whole course through a terminal is the long one."""

import os
import re
import sys
from pathlib import Path

import pexpect
import pytest
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.learn.exercises import course, file_names
from clearhead.learn.likely import variant
from clearhead.learn.session import bug_file, solution

NAMES = list(course())


def told(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["learn", *words])
    assert result.exit_code == status, result.output
    return result.output


def test_hints_come_one_by_one_and_skipping_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"{len(NAMES)} exercises in mine/. Next: cd mine && clearhead learn" in told("start", "mine")
    monkeypatch.chdir(tmp_path / "mine")
    for count in (1, 2, 3, 3):
        said = told("hint")
        assert said.count(" of 3: ") == count
    assert f"skipped {NAMES[0]}" in told("skip")
    listed = told("list")
    assert re.search(rf"▸ +2 {NAMES[1]}", listed)
    assert "– " in listed
    assert told("solution", "4") == solution(NAMES[3])
    assert "written anew" in told("reset", "attention")
    assert "notebooks" in told("export", "--notebook", "notebooks")


def test_outside_of_a_folder_it_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["learn"])
    assert result.exit_code != 0
    assert "clearhead learn start" in str(result.exception)


# ---- the whole course ----------------------------------------------------------------------------------------------


class Terminal:
    """The real command in a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        root = str(Path(__file__).resolve().parents[2])
        self.folder = folder
        self.settings = {"env": {**os.environ, "PYTHONPATH": root, "TERM": "xterm", "COLUMNS": "200"}}

    def spawn(self, *words: str, seconds: float = 300) -> pexpect.spawn:
        child = pexpect.spawn(
            sys.executable, ["-m", "clearhead", *words], cwd=str(self.folder), timeout=seconds,
            encoding="utf-8", dimensions=(60, 200), **self.settings,
        )  # fmt: skip
        child.setecho(False)
        return child

    def run(self, *words: str, status: int = 0, seconds: float = 300) -> str:
        child = self.spawn(*words, seconds=seconds)
        child.expect(pexpect.EOF)
        child.close()
        said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", str(child.before)).replace("\r\n", "\n")
        assert child.exitstatus == status, said
        return said


def wrong_file(name: str) -> tuple[str, str]:
    """Our solution with the first mistake that has a short text, and what should be told."""
    exercise = course()[name]
    whole = solution(name)
    for mistake in exercise.mistakes:
        if mistake.changes and all(whole.count(old) == 1 for old, _ in mistake.changes) and variant(exercise, mistake):
            for old, new in mistake.changes:
                whole = whole.replace(old, new)
            return whole, mistake.say
    raise AssertionError(name)


@pytest.mark.long
def test_the_whole_course_in_a_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    assert "Next: cd mine && clearhead learn" in terminal.run("learn", "start", "mine")
    terminal.folder = folder = tmp_path / "mine"
    for number, name in enumerate(NAMES, 1):
        exercise, path = course()[name], folder / file_names()[name]
        said = terminal.run("learn")
        assert f"{number}/{len(NAMES)} {name}" in said
        assert "not yet written" in said
        text, likely = wrong_file(name)
        path.write_text(text, encoding="utf-8")
        said = terminal.run("learn", status=1)
        assert " ".join(likely.split()) in " ".join(said.split())
        assert "clearhead learn hint" in said
        assert exercise.hints[0][:40] in terminal.run("learn", "hint")
        path.write_text(solution(name), encoding="utf-8")
        assert "passed" in terminal.run("learn")
        if exercise.bug is not None:
            file = folder / bug_file(name)
            terminal.run("learn", "bug", status=1)
            mended = file.read_text(encoding="utf-8")
            for old, new in exercise.bug.changes:
                mended = mended.replace(new, old)
            file.write_text(mended, encoding="utf-8")
            assert "found" in terminal.run("learn", "bug")
    assert f"{len(NAMES)} of {len(NAMES)} passed" in terminal.run("learn", "list")
    said = terminal.run("learn", "finish", seconds=1500)
    right, total = map(int, re.search(r"(\d+) of (\d+) exactly right", said).groups())  # type: ignore[union-attr]
    assert right >= 0.95 * total
    assert "ours, because not passed" not in said
    assert "3 1 2" in terminal.run("attention", "runs/copy", "3 1 2")
    assert "exact" in terminal.run("evaluate", "runs/copy")
    assert {path.name for path in tmp_path.iterdir()} == {"mine"}


@pytest.mark.long
def test_watching_checks_at_every_save(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.run("learn", "start", ".")
    path = tmp_path / file_names()["bytepairs"]
    child = terminal.spawn("learn", "watch", seconds=60)
    child.expect("not yet written: merge")
    text, likely = wrong_file("bytepairs")
    path.write_text(text, encoding="utf-8")
    child.expect_exact(likely)
    child.expect("q quit")
    child.send("h")
    child.expect("hint 1 of 3")
    child.send("n")
    child.expect("not passed yet")
    path.write_text(solution("bytepairs"), encoding="utf-8")
    child.expect("the next exercise")
    child.send("l")
    child.expect(f"1 of {len(NAMES)} passed")
    child.send("n")
    child.expect(f"2/{len(NAMES)} {NAMES[1]}")
    child.send("s")
    child.expect(f"3/{len(NAMES)} {NAMES[2]}")
    child.send("q")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
