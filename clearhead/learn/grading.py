"""Grading: every exercise of many folders, each checked in a copy, in a process of its own, with limits.

An exercise is checked whether or not those before it passed: what it needs of a failed one is ours, so that one mistake
costs once. Hints are what the learner's own `progress.json` remembers.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from clearhead.errors import InputError, visible
from clearhead.learn.exercises import course, file_names
from clearhead.learn.folder import PROGRESS, Folder, parse, read_course
from clearhead.learn.process import Checker
from clearhead.learn.verdict import UNWRITTEN, Verdict


@dataclass(frozen=True)
class Graded:
    """One exercise of one folder."""

    exercise: str
    verdict: Verdict
    hints: int

    def to_json(self) -> dict[str, Any]:
        likely = self.verdict.likely[0] if self.verdict.likely else None
        return {
            "exercise": self.exercise,
            "passed": self.verdict.passed,
            "status": self.verdict.status,
            "message": self.verdict.message,
            "cause": likely.id if likely else None,
            "likely": likely.say if likely else None,
            "hints": self.hints,
            "seconds": round(self.verdict.seconds, 2),
        }


@dataclass(frozen=True)
class Grade:
    """All exercises of one folder."""

    folder: str
    exercises: tuple[Graded, ...]

    @property
    def passed(self) -> int:
        return sum(graded.verdict.passed for graded in self.exercises)

    def to_json(self) -> dict[str, Any]:
        rows = [graded.to_json() for graded in self.exercises]
        return {"folder": self.folder, "passed": self.passed, "of": len(rows), "exercises": rows}


def grade_folders(folders: Sequence[Path], checker: Checker, teacher: Path | None = None) -> Iterator[Grade]:
    """The grades, one folder after the other."""
    order = None if teacher is None else read_course(teacher, list(course()))[1]
    for path in folders:
        if not path.is_dir():
            raise InputError(f"{path} is not a folder")
    for path in folders:
        yield grade(path, order, checker)


def grade(path: Path, order: Sequence[str] | None, checker: Checker) -> Grade:
    known = parse(path) if (path / PROGRESS).is_file() else Folder(path, list(course()))
    with tempfile.TemporaryDirectory(prefix="clearhead-grade-") as temporary:
        copy = Path(temporary) / "folder"
        copy.mkdir()
        for file in path.glob("*.py"):
            shutil.copyfile(file, copy / file.name)
        graded: list[Graded] = []
        for name in order or known.order:
            own = [one.exercise for one in graded if one.verdict.passed]
            if (copy / file_names()[name]).is_file():
                verdict = checker.check(copy, name, own)
            else:
                verdict = Verdict(name, UNWRITTEN, message=f"{file_names()[name]} is missing")
            graded.append(Graded(name, verdict, known.record(name).hints))
    return Grade(str(path), tuple(graded))


def table(grade: Grade) -> str:
    """A line for the folder, and one for each exercise that is not passed."""
    lines = [f"{visible(grade.folder)}: {grade.passed} of {len(grade.exercises)} passed"]
    for graded in grade.exercises:
        if not graded.verdict.passed:
            likely = f": {graded.verdict.likely[0].say}" if graded.verdict.likely else ""
            lines.append(f"  {graded.exercise:<12} {visible(graded.verdict.message)}{likely}")
    return "\n".join(lines)


def junit_xml(grades: Sequence[Grade]) -> str:
    """A test suite for each folder, a test case for each exercise."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>"]
    for grade in grades:
        count = len(grade.exercises)
        suite = quoteattr(visible(grade.folder))
        lines.append(f'  <testsuite name={suite} tests="{count}" failures="{count - grade.passed}">')
        for graded in grade.exercises:
            verdict = graded.verdict
            case = f'    <testcase classname={suite} name={quoteattr(graded.exercise)} time="{verdict.seconds:.2f}"'
            if verdict.passed:
                lines.append(f"{case}/>")
            else:
                said = escape(visible(str(verdict), keep="\n"))
                lines += [f"{case}>", f"      <failure message={quoteattr(visible(verdict.message))}>{said}</failure>"]
                lines.append("    </testcase>")
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])
