"""What `clearhead learn` does in a folder: make it, check the current exercise, go on to the next.

Nothing here prints: what is to be said comes back as text, for a terminal, a test or a teacher's table.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from clearhead.disk import make_folder, write_whole
from clearhead.errors import InputError
from clearhead.learn.exercise import Exercise
from clearhead.learn.exercises import course, file_names
from clearhead.learn.folder import MOST_CHANGED, PASSED, PROGRESS, Folder, changed_lines, parse, read_course
from clearhead.learn.process import Checker, Progress
from clearhead.learn.source import change, source_of, write_file
from clearhead.learn.verdict import WRONG, Verdict


def start(path: Path, teacher: Path | None = None) -> Folder:
    """Make a folder with a stub for each exercise. Files that are there already stay as they are."""
    known = list(course())
    title, order = ("", known) if teacher is None else read_course(teacher, known)
    if (path / PROGRESS).exists():
        there = parse(path)
        if there.records or (there.title, there.order) != (title, order):  # else nobody has begun: the same once more
            raise InputError(f"{path} is such a folder already: cd {path} && clearhead learn")
    make_folder(path)
    for name in order:
        file = path / file_names()[name]
        if not file.exists():
            write_whole(file, stub(name, order).encode())
    folder = Folder(path.resolve(), order, title)
    folder.save()
    return folder


def stub(name: str, order: list[str]) -> str:
    return write_file(course()[name], course(), file_names(), solved=False, place=(order.index(name) + 1, len(order)))


def solution(name: str) -> str:
    """Our file of an exercise."""
    return write_file(course()[name], course(), file_names(), solved=True)


def bug_file(name: str) -> str:
    return file_names()[name].partition("_")[0] + "_bug.py"


def with_bug(exercise: Exercise) -> str:
    """Our file of an exercise with one silent bug, for the learner to find."""
    bug = exercise.bug
    assert bug is not None
    text = source_of(exercise.source).text(bug.part)
    body = solution(exercise.name).partition('"""\n')[2]  # behind the file's docstring
    head = (
        f'"""Find the bug: {exercise.name}, finished, with one silent bug.\n\n'
        f"It does not crash, and this looks right:\n    {bug.harmless}\n"
        f"At most {MOST_CHANGED} lines may change. Then:  clearhead learn bug {exercise.name}\n"
        '"""\n'
    )
    return head + body.replace(text, change(text, bug.changes, f"{exercise.name}, bug"))


def bug_touched(folder: Folder, name: str) -> bool:
    """Has the learner changed the file with the bug, or is it as we wrote it?"""
    file = folder.path / bug_file(name)
    return file.exists() and file.read_text(encoding="utf-8", errors="replace") != with_bug(course()[name])


@dataclass(frozen=True)
class Checked:
    """A verdict, and where the learner stands after it."""

    exercise: Exercise
    verdict: Verdict
    newly: bool  # passed for the first time
    bug: str = ""  # a file with a bug that has just been written


def check_exercise(folder: Folder, name: str, checker: Checker, progress: Progress | None = None) -> Checked:
    """Check the learner's file of an exercise, and remember how it went."""
    exercise = course()[name]
    file = folder.path / file_names()[name]
    if not file.exists():
        raise InputError(f"{file.name} is gone; `clearhead learn reset {name}` writes the exercise anew")
    own = [other for other in folder.own() if other != name]
    digest = folder.digest(name)
    verdict = checker.check(folder.path, name, own, progress)
    with folder.changing(name) as record:
        record.checks += 1
    newly, written = False, ""
    if verdict.passed:
        newly = folder.close(name, PASSED, digest)
        bug = folder.path / bug_file(name)
        if exercise.bug is not None and not bug.exists():
            write_whole(bug, with_bug(exercise).encode())
            written = bug.name
    return Checked(exercise, verdict, newly, written)


def check_bug(folder: Folder, name: str, checker: Checker) -> Checked:
    """Has the bug been found, and with few changes?"""
    exercise = course()[name]
    if exercise.bug is None:
        others = ", ".join(other for other in folder.order if course()[other].bug is not None)
        raise InputError(f"{name} has no file with a bug{f'; these have one: {others}' if others else ''}")
    file = folder.path / bug_file(name)
    if not file.exists():
        write_whole(file, with_bug(exercise).encode())
        said = f"{file.name} is written: one silent bug is in it, and at most {MOST_CHANGED} lines may change"
        return Checked(exercise, Verdict(name, WRONG, message=said), False, file.name)
    verdict = checker.check(folder.path, name, [], file=file.name)
    if verdict.status == WRONG:  # the counterexample is enough: where and why is to be found
        verdict = replace(verdict, likely=(), line=None)
    count = changed_lines(with_bug(exercise), file.read_text(encoding="utf-8", errors="replace"))
    if verdict.passed and count > MOST_CHANGED:
        message = f"right, but {count} lines differ: find the bug, and change at most {MOST_CHANGED}"
        verdict = replace(verdict, status=WRONG, message=message)
    elif verdict.passed:
        with folder.changing(name) as record:
            record.bug = "found"
        verdict = replace(verdict, message=f"found: {exercise.bug.say}", picture="")
    return Checked(exercise, verdict, False)


def reset_exercise(folder: Folder, name: str, force: bool) -> str:
    """Write the stub again; the file that was there is kept under another name, which is returned."""
    file = folder.path / file_names()[name]
    kept = ""
    fresh = stub(name, folder.order)
    if file.exists() and not force and file.read_text(encoding="utf-8", errors="replace") != fresh:
        old = file.with_suffix(".old.py")
        number = 2
        while old.exists():
            old = file.with_suffix(f".old{number}.py")
            number += 1
        file.rename(old)
        kept = old.name
    write_whole(file, fresh.encode())
    with folder.changing(name) as record:
        if record.status == PASSED:
            folder.records.pop(name)
    return kept


def find_bug(folder: Folder, exercise: str | None) -> str:
    """The exercise that is named, or the one passed last whose file with a bug is still open."""
    if exercise is not None:
        name = folder.find(exercise)
        if folder.record(name).status != PASSED and not (folder.path / bug_file(name)).exists():
            raise InputError(f"{name} is not passed yet, and its file with a bug shows our solution: pass it first")
        return name
    passed = [name for name in folder.own() if course()[name].bug is not None]
    open_ones = [name for name in passed if not folder.record(name).bug] or passed
    if not open_ones:
        raise InputError("no exercise with a bug to find is passed yet")
    return max(open_ones, key=lambda name: folder.record(name).closed)
