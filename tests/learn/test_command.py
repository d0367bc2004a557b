"""`clearhead learn` as a learner meets it; the whole course through a terminal, to its end, is the long one."""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pexpect
import pytest
from typer.testing import CliRunner

from clearhead.cli.main import app
from clearhead.learn.exercises import course, file_names
from clearhead.learn.likely import variant
from clearhead.learn.process import Checker
from clearhead.learn.session import bug_file, check_exercise, solution, start

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
    assert told("hint", "4").startswith(f"4/{len(NAMES)} {NAMES[3]}")
    assert "is not passed yet" in str(CliRunner().invoke(app, ["learn", "bug", "4"]).exception)
    assert told("solution", "4") == solution(NAMES[3])
    assert "written anew" in told("reset", "attention")
    assert "notebooks" in told("export", "--notebook", "notebooks")


def test_outside_of_a_folder_it_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["learn"])
    assert result.exit_code != 0
    assert "clearhead learn start" in str(result.exception)


def test_time_is_told_where_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = start(tmp_path)
    with folder.changing(NAMES[0]) as record:
        record.opened, record.closed, record.status, record.hints = 1000.0, 2980.0, "passed", 2
    folder.close(NAMES[5], "passed")  # out of order: nobody knows when it was begun
    monkeypatch.chdir(tmp_path)
    listed = told("list")
    assert re.search(rf"✓ +1 {NAMES[0]} +passed 33 minutes after it came up, 2 hints\n", listed)
    assert re.search(rf"✓ +6 {NAMES[5]} +passed\n", listed)
    (tmp_path / file_names()[NAMES[0]]).write_text("")
    with folder.changing(NAMES[0]) as record:
        record.digest = "of another"
    assert "2 hints, file changed since" in told("list")


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


def by_hand(folder: Path, run: Path, texts: list[str]) -> list[str]:
    """What the learner's own files write: their model with the run's weights, their greedy decoding."""
    script = """
import json, sys
import torch
from safetensors.torch import load_file
from clearhead.run import Run
from ex10_decoder import Transformer
from ex13_decoding import greedy
run, sizes, texts = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
tokenizer = Run(run).tokenizer()
model = Transformer(tokenizer.size, *sizes, 0.0)
model.load_state_dict(load_file(sys.argv[4]))
model.eval()
for text in texts:
    source = torch.tensor([[*tokenizer.encode(text), 2]])
    print(tokenizer.decode(greedy(model, source, source != 0, 1, 2, source.size(1) + 10)[0]))
"""
    config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["model"]
    sizes = [config[key] for key in ("d_model", "heads", "d_ff", "encoder_layers")]
    (weights,) = run.glob("checkpoints/*/model.safetensors")
    words = [str(run), json.dumps(sizes), json.dumps(texts), str(weights)]
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=folder, env={**os.environ, "PYTHONPATH": root},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def translated(terminal: Terminal, run: str, texts: list[str]) -> list[str]:
    """What `clearhead translate` writes, a line for each text."""
    (terminal.folder / "lines.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return terminal.run("translate", run, "lines.txt").splitlines()


def share(said: str) -> float:
    found = re.search(r"(\d+) of (\d+) exactly right", said)
    assert found, said
    return int(found[1]) / int(found[2])


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
        if number % 5 == 4:  # some by watching, the others by asking
            watched(terminal, path, solution(name))
        else:
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
    assert share(said) >= 0.95
    assert "in 1000 steps" in said
    assert "ours, because not passed" not in said
    texts = ["3 1 2", "7 7 0 9 4", "5"]
    assert translated(terminal, "runs/copy", texts) == by_hand(folder, folder / "runs" / "copy", texts)
    assert "wrote runs/copy/plots/attention.png" in terminal.run("attention", "runs/copy", "3 1 2")
    assert "exact" in terminal.run("evaluate", "runs/copy")
    assert {path.name for path in tmp_path.iterdir()} == {"mine"}


def watched(terminal: Terminal, path: Path, text: str) -> None:
    """Write a file while `watch` looks on, and quit once it is passed."""
    child = terminal.spawn("learn", "watch", seconds=120)
    child.expect("q quit")
    path.write_text(text, encoding="utf-8")
    child.expect("passed")
    child.expect(["the next exercise", "Every exercise is done"])  # the last one ends the course
    child.send("q")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.long
def test_dates_are_learned_by_the_learners_loop(tmp_path: Path, checker: Checker) -> None:
    terminal, folder = Terminal(tmp_path), start(tmp_path)
    for name in NAMES:
        (tmp_path / file_names()[name]).write_text(solution(name), encoding="utf-8")
        assert check_exercise(folder, name, checker).verdict.passed
    said = terminal.run("learn", "finish", "--task", "dates", seconds=3000)
    assert share(said) >= 0.95
    assert "ours, because not passed" not in said
    texts = ["Samstag, 3. März 2029", "le 14 juillet 1989", "2 Feb 1999"]
    assert translated(terminal, "runs/dates", texts) == by_hand(tmp_path, tmp_path / "runs" / "dates", texts)


def test_what_is_saved_during_the_first_check_is_seen(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.run("learn", "start", ".")
    path, begun = tmp_path / file_names()["bytepairs"], tmp_path / "begun"
    slow = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(1.5)\n"
    path.write_text(path.read_text(encoding="utf-8") + slow, encoding="utf-8")
    child = terminal.spawn("learn", "watch", seconds=60)
    until = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.02)
    path.write_text(solution("bytepairs"), encoding="utf-8")
    child.expect("the next exercise")
    child.send("q")
    child.expect(pexpect.EOF)
    child.close()


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
    child.expect(["the next exercise", "Every exercise is done"])  # the last one ends the course
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
