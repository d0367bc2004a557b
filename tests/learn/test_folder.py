"""A learner's folder: what is made, what is remembered, and that no work is lost."""

import json
import threading
import time
from pathlib import Path

import pytest

from clearhead.disk import LOCK, locked
from clearhead.errors import InputError
from clearhead.learn.exercises import course, file_names
from clearhead.learn.folder import OPEN, PASSED, PROGRESS, SKIPPED, Folder, changed_lines, read_folder
from clearhead.learn.grading import grade_folders, junit_xml, table
from clearhead.learn.process import Checker
from clearhead.learn.session import (
    Checked,
    bug_file,
    check_bug,
    check_exercise,
    find_bug,
    reset_exercise,
    solution,
    start,
    with_bug,
)
from clearhead.learn.verdict import Verdict


def write(folder: Folder, name: str, text: str) -> Path:
    path = folder.path / file_names()[name]
    path.write_text(text, encoding="utf-8")
    return path


def test_every_exercise_gets_a_file(tmp_path: Path) -> None:
    folder = start(tmp_path / "mine")
    assert {path.name for path in folder.path.iterdir()} == {*file_names().values(), PROGRESS}
    assert read_folder(folder.path) == folder
    (folder.path / file_names()["masks"]).unlink()  # as after a disk that was full
    assert start(tmp_path / "mine") == folder
    assert (folder.path / file_names()["masks"]).exists()
    folder.open_current()
    with pytest.raises(InputError, match="already"):
        start(tmp_path / "mine")


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    (tmp_path / "ex01_bytepairs.py").write_text("mine\n")
    start(tmp_path)
    assert (tmp_path / "ex01_bytepairs.py").read_text() == "mine\n"


def test_progress_is_remembered(tmp_path: Path, checker: Checker) -> None:
    folder = start(tmp_path)
    assert folder.open_current() == "bytepairs"
    assert check_exercise(folder, "bytepairs", checker).verdict.status == "unwritten"
    write(folder, "bytepairs", solution("bytepairs"))
    result = check_exercise(folder, "bytepairs", checker)
    assert result.newly
    assert result.bug == "ex01_bug.py"
    again = read_folder(tmp_path)
    assert again.record("bytepairs").status == "passed"
    assert again.record("bytepairs").checks == 2
    assert again.current == list(course())[1]
    assert again.own() == ["bytepairs"]


def passing(folder: Folder) -> Checked:
    """A check of exercise 4 that passes while another terminal passes 9, looks at a hint of 2 and skips 3."""

    class Slow(Checker):
        def check(self, *_: object, **more: object) -> Verdict:
            other = read_folder(folder.path)
            other.close("encoder", PASSED)
            with other.changing("embedding") as record:
                record.hints = 2
            other.close("positions", SKIPPED)
            return Verdict("attention", PASSED)

    return check_exercise(folder, "attention", Slow())


def test_two_terminals_lose_nothing_of_each_other(tmp_path: Path) -> None:
    folder = start(tmp_path)
    folder.open_current()
    assert passing(folder).newly
    for seen in (folder, read_folder(tmp_path)):  # the slow one knows it, too: it says what is next
        states = {name: record.status for name, record in seen.records.items() if record.status != OPEN}
        assert states == {"encoder": PASSED, "positions": SKIPPED, "attention": PASSED}
        assert seen.record("embedding").hints == 2
        assert seen.record("attention").checks == 1
        assert seen.record("bytepairs").opened


def test_what_is_remembered_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    folder, names = start(tmp_path), list(course())
    with locked(tmp_path):
        threads = [threading.Thread(target=read_folder(tmp_path).close, args=(name, PASSED)) for name in names]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        assert read_folder(tmp_path).own() == []  # they wait
    for thread in threads:
        thread.join(20)
    assert sorted(read_folder(tmp_path).own()) == sorted(names)
    assert not (tmp_path / LOCK).exists()
    assert folder.open_current() is None  # it looks again


def test_a_passed_file_that_was_changed_is_said_to_be(tmp_path: Path) -> None:
    folder = start(tmp_path)
    passing(folder)
    assert not folder.changed("attention")
    assert not folder.changed("encoder")  # nothing is known of its file
    path = write(folder, "attention", "")
    assert read_folder(tmp_path).changed("attention") == ", file changed since"
    path.unlink()
    assert folder.changed("attention") == ", file not there now"
    write(folder, "attention", "mine\n")
    passing(folder)
    assert not folder.changed("attention")
    reset_exercise(folder, "attention", force=False)
    assert not folder.changed("attention")


def test_an_exercise_that_is_not_there_names_those_that_are_in_order(tmp_path: Path) -> None:
    folder = start(tmp_path)
    for number in ("99", "0", "²"):
        with pytest.raises(InputError, match="1 to 14 are bytepairs, embedding, positions, attention"):
            folder.find(number)
    with pytest.raises(InputError, match="did you mean 'attention'"):
        folder.find("atention")


def test_a_bug_is_found_with_few_changes(tmp_path: Path, checker: Checker) -> None:
    folder = start(tmp_path)
    assert "is written" in check_bug(folder, "bytepairs", checker).verdict.message
    buggy = check_bug(folder, "bytepairs", checker).verdict
    assert not buggy.passed
    assert not buggy.likely  # the cause is to be found
    path = folder.path / bug_file("bytepairs")
    path.write_text(solution("bytepairs") + "\n".join("# more" for _ in range(9)))
    assert "lines differ" in check_bug(folder, "bytepairs", checker).verdict.message
    new, old = "min(times, key=lambda pair: (-times[pair], pair))", "max(times, key=lambda pair: times[pair])"
    path.write_text(with_bug(course()["bytepairs"]).replace(old, new))
    assert "found" in check_bug(folder, "bytepairs", checker).verdict.message
    assert read_folder(tmp_path).record("bytepairs").bug == "found"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(exercise.name, marks=[] if exercise.name in ("masks", "loss") else [pytest.mark.long])
        for exercise in course().values()
        if exercise.bug
    ],
)
def test_every_bug_is_rejected_and_its_mending_accepted(name: str, tmp_path: Path, checker: Checker) -> None:
    folder = start(tmp_path)
    exercise = course()[name]
    assert exercise.bug is not None
    check_bug(folder, name, checker)
    assert check_bug(folder, name, checker).verdict.status == "wrong"
    path = folder.path / bug_file(name)
    text = path.read_text()
    for old, new in exercise.bug.changes:
        assert text.count(new) == 1
        text = text.replace(new, old)
    path.write_text(text)
    verdict = check_bug(folder, name, checker).verdict
    assert verdict.message.startswith("found"), str(verdict)


def test_a_file_with_a_bug_shows_no_solution_before_the_exercise_is_passed(tmp_path: Path) -> None:
    folder = start(tmp_path)
    with pytest.raises(InputError, match="bytepairs is not passed yet"):
        find_bug(folder, "1")
    with pytest.raises(InputError, match="no exercise with a bug"):
        find_bug(folder, None)
    folder.close("bytepairs", "passed")
    assert find_bug(folder, "1") == find_bug(folder, None) == "bytepairs"


def test_reset_loses_nothing(tmp_path: Path) -> None:
    folder = start(tmp_path)
    fresh = (tmp_path / "ex04_attention.py").read_text()
    for expected in ("ex04_attention.old.py", "ex04_attention.old2.py"):
        write(folder, "attention", "my work\n")
        assert reset_exercise(folder, "attention", force=False) == expected
        assert (tmp_path / expected).read_text() == "my work\n"
    assert (tmp_path / "ex04_attention.py").read_text() == fresh
    assert reset_exercise(folder, "attention", force=False) == ""


def test_a_teacher_s_choice_and_order(tmp_path: Path, checker: Checker) -> None:
    chosen = tmp_path / "course.toml"
    chosen.write_text('title = "Short"\nexercises = ["masks", "attention"]\n')
    folder = start(tmp_path / "mine", chosen)
    assert folder.order == ["masks", "attention"]
    assert (folder.path / "ex05_masks.py").read_text().startswith('"""1/2 masks')
    write(folder, "masks", solution("masks"))
    assert check_exercise(folder, "masks", checker).verdict.passed
    for text, said in (
        ('exercises = ["maks"]', "masks"),
        ("exercises = 3", "list of names"),
        ('exercises = ["masks", "masks"]', "twice"),
        ('exercise = ["masks"]', "exercises"),
    ):
        chosen.write_text(text)
        with pytest.raises(InputError, match=said):
            start(tmp_path / "other", chosen)


def test_a_damaged_progress_is_one_line(tmp_path: Path) -> None:
    start(tmp_path)
    for text in ("{", "[]", '{"format": "other"}', '{"format": "clearhead-learn-1", "progress": {"x": {"y": 1}}}'):
        (tmp_path / PROGRESS).write_text(text)
        with pytest.raises(InputError, match=r"damaged.* and what you wrote stays"):
            read_folder(tmp_path)


def test_a_progress_that_is_gone_is_made_anew_where_it_was(tmp_path: Path) -> None:
    folder = start(tmp_path / "mine")
    mine = write(folder, "attention", "mine\n")
    (folder.path / PROGRESS).unlink()
    with pytest.raises(InputError, match=r"progress.json is gone: `clearhead learn start \.`") as said:
        read_folder(folder.path)
    assert "what you wrote stays" in str(said.value)
    assert "start mine" not in str(said.value)
    start(folder.path)
    assert mine.read_text() == "mine\n"


def test_outside_of_a_folder_it_says_where_one_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`clearhead learn start mine` makes one"):
        read_folder(tmp_path)
    start(tmp_path / "mine")
    with pytest.raises(InputError, match="`cd mine` goes to one"):
        read_folder(tmp_path)


def test_grading_costs_a_mistake_once(tmp_path: Path, checker: Checker) -> None:
    chosen = tmp_path / "course.toml"
    chosen.write_text('exercises = ["attention", "masks"]\n')
    good, bad = start(tmp_path / "good", chosen), start(tmp_path / "bad", chosen)
    for folder in (good, bad):
        write(folder, "masks", solution("masks"))
        write(folder, "attention", solution("attention"))
    write(bad, "attention", solution("attention").replace(" / math.sqrt(q.size(-1))", ""))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    grades = list(grade_folders([good.path, bad.path], checker))
    assert [grade.passed for grade in grades] == [2, 1]
    row = grades[1].to_json()["exercises"][0]
    assert row["cause"] == "scale-missing"
    assert json.loads(json.dumps(row)) == row
    assert "scores are not divided" in table(grades[1])
    assert junit_xml(grades).count("<failure") == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_lines_that_differ_are_counted() -> None:
    assert changed_lines("a\nb\nc\n", "a\nb\nc\n") == 0
    assert changed_lines("a\nb\nc\n", "a\nx\nc\nd\n") == 2
