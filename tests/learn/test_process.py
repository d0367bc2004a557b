"""Whatever a learner's file does, it becomes a message with its line, and the process that asks is unharmed."""

from pathlib import Path

import pytest

from clearhead.learn.exercises import course, file_names
from clearhead.learn.process import Checker
from clearhead.learn.session import solution, stub
from clearhead.learn.verdict import Verdict

FILE = file_names()["attention"]
BODY = "raise NotImplementedError  # your code here"


def checked(checker: Checker, folder: Path, text: str, **more: object) -> Verdict:
    (folder / FILE).write_text(text, encoding="utf-8")
    return checker.check(folder, "attention", **more)  # type: ignore[arg-type]


def written(body: str) -> str:
    return stub("attention", list(course())).replace(BODY, body.replace("\n", "\n    "))


def line_with(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_a_solution_passes_and_leaves_nothing_behind(checker: Checker, tmp_path: Path) -> None:
    verdict = checked(checker, tmp_path, solution("attention"))
    assert verdict.passed, str(verdict)
    assert "█" in verdict.picture
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


CASES = {
    "syntax": (written("return q @"), "syntax", "return q @", "invalid syntax"),
    "raising": (written("return q @ k.mT") + "\nprint(1 / 0)\n", "import", "1 / 0", "ZeroDivisionError"),
    "endless": (written("while True:\n    pass"), "time", "while True", "does a loop never end?"),
    "exit": (written("import sys\nsys.exit(3)"), "exit", "sys.exit(3)", "ends the program"),
    "quit at import": ("quit()\n" + written("return q"), "exit", "quit()", "ends the program"),
    "missing": ("x = 1\n", "missing", "", "put it back, or `clearhead learn reset attention`"),
    "unfit": (written("return q @ k"), "runs", "return q @ k", "attention fails"),
    "nothing": (written("q @ k.mT"), "shapes", "def attention", "wrong shape"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_told_with_its_line(name: str, checker: Checker, tmp_path: Path) -> None:
    text, kind, part, said = CASES[name]
    verdict = checked(checker, tmp_path, text, seconds=0.7)
    assert verdict.kind == kind, str(verdict)
    assert said in verdict.message
    if part:
        assert verdict.line is not None
        assert abs(verdict.line.number - line_with(text, part)) <= (1 if kind == "time" else 0)


def test_a_process_that_ends_itself_is_told(checker: Checker, tmp_path: Path) -> None:
    assert "status 3" in checked(checker, tmp_path, written("import os\nos._exit(3)")).message
    assert "SIGKILL" in checked(checker, tmp_path, written("import os\nos.kill(os.getpid(), 9)")).message


def test_output_and_threads_are_remarks(checker: Checker, tmp_path: Path) -> None:
    late = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    own = "import threading\nimport time\n\n\ndef wait():\n    time.sleep(60)\n\n\n"
    own += "threading.Thread(target=wait).start()\n"
    verdict = checked(checker, tmp_path, own + solution("attention") + "\nprint('hello')\n")
    assert verdict.passed
    assert verdict.printed.strip() == "hello"
    assert any("line 6" in remark and "time.sleep(60)" in remark for remark in verdict.remarks)
    assert checked(checker, tmp_path, late + solution("attention")).passed


def test_input_finds_no_one(checker: Checker, tmp_path: Path) -> None:
    verdict = checked(checker, tmp_path, written("return input()"))
    assert "EOFError" in verdict.got
    assert "nobody to type" in verdict.likely[0].say
    assert verdict.line is not None
    assert verdict.line.text.strip() == "return input()"
    verdict = checked(checker, tmp_path, "input()\n" + solution("attention"))
    assert "line 1: your code waits for input()" in verdict.message


def test_a_flood_of_output_is_no_endless_loop(checker: Checker, tmp_path: Path) -> None:
    flood = "for _ in range(10**6):\n    print('scores', q.shape, 'x' * 50)\nreturn q"
    verdict = checked(checker, tmp_path, written(flood), seconds=0.7)
    assert verdict.kind == "time"
    assert "million characters were printed" in verdict.message
    assert "endless" not in verdict.message


def test_a_file_named_like_a_module_does_no_harm(checker: Checker, tmp_path: Path) -> None:
    for name in ("random.py", "torch.py", "math.py", "copy.py"):
        (tmp_path / name).write_text("raise RuntimeError('not me')\n")
    assert checked(checker, tmp_path, solution("attention")).passed


def test_earlier_exercises_are_the_learner_s_or_ours(checker: Checker, tmp_path: Path) -> None:
    if "multihead" not in course():
        pytest.skip("multihead is not there yet")
    (tmp_path / file_names()["multihead"]).write_text(solution("multihead"))
    (tmp_path / file_names()["masks"]).write_text("def masked_attention(q, k, v, may_attend=None):\n    return 0 * q\n")
    (tmp_path / file_names()["heads"]).write_text(solution("heads"))
    assert checker.check(tmp_path, "multihead", own=["heads"]).passed
    assert not checker.check(tmp_path, "multihead", own=["heads", "masks"]).passed
