"""Answers to the exercises, wrong and right, as people write them: tests/learn/answers/NAME.txt.

A file has blocks, each headed by a line `# ---- wrong: CAUSE [or CAUSE …]: title`, or `# ---- right: title`. A cause
is the id that should be told first or second; `(held out)` marks what was not looked at while the checks were written,
`(later)` and `(fresh)` what was written, at two times, without looking at checks that stood. A block is Python: it
defines the parts it is about; the others, and everything else of the one file, are ours, as are torch, math, nn, F and
Tensor.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from clearhead.learn.exercise import Exercise
from clearhead.learn.exercises import course
from clearhead.learn.judge import check
from clearhead.learn.load import load_file
from clearhead.learn.source import names_defined
from clearhead.learn.verdict import Verdict

FOLDER = Path(__file__).parent / "answers"
HEAD = re.compile(
    r"^# ---- (right|wrong)( \(held out\)| \(later\)| \(fresh\)| \(blind\)| \(blind 2\)| \(blind 3\))?: (.*)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Answer:
    exercise: str
    right: bool
    apart: str  # "held out", "later", "fresh", "blind", "blind 2", "blind 3" or nothing
    causes: tuple[str, ...]
    title: str
    code: str

    def __str__(self) -> str:
        return f"{self.exercise}: {self.title}"


def read(name: str) -> list[Answer]:
    """All answers to an exercise."""
    path = FOLDER / f"{name}.txt"
    if not path.exists():
        return []
    pieces = HEAD.split(path.read_text(encoding="utf-8"))[1:]
    answers = []
    for kind, held, head, code in zip(*[iter(pieces)] * 4, strict=True):
        causes, _, title = head.partition(": ") if kind == "wrong" else ("", "", head)
        named = tuple(cause.strip() for cause in causes.split(" or ") if cause)
        apart = (held or "").strip(" ()")
        answers.append(Answer(name, kind == "right", apart, named, title.strip(), code.strip() + "\n"))
    return answers


def everything() -> list[Answer]:
    return [answer for name in course() for answer in read(name)]


def judge(answer: Answer, folder: Path) -> Verdict:
    """The verdict on an answer, as on a file of the learner."""
    exercise: Exercise = course()[answer.exercise]
    path = folder / f"answer_{abs(hash(str(answer)))}.py"
    head = f"from clearhead.{exercise.source} import *\nimport math, torch\nimport torch.nn.functional as F\n"
    path.write_text(f"{head}from torch import Tensor, nn\n\n{answer.code}", encoding="utf-8")
    module = load_file(path, path.stem)
    written = names_defined(answer.code)
    return check(exercise, **{part: getattr(module, part) for part in exercise.parts if part in written})
