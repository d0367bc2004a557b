"""The verdict: what was called, what came out, what should have, and what is likely wrong, with the line to look at."""

import html
from dataclasses import asdict, dataclass, field
from typing import Any

PASSED, WRONG, UNWRITTEN, BROKEN = "passed", "wrong", "unwritten", "broken"


@dataclass(frozen=True)
class Likely:
    """A cause by name, and in words."""

    id: str
    say: str


@dataclass(frozen=True)
class Line:
    """A line of the learner's file."""

    file: str
    number: int
    text: str
    near: bool = False  # a guess among several such lines, or where the part begins


@dataclass(frozen=True)
class Verdict:
    """What a check found. Four lines say what is wrong: called, got, wanted, likely."""

    exercise: str
    status: str  # passed, wrong, unwritten (a part has no body yet), broken (it does not run at all)
    part: str = ""
    kind: str = ""  # runs, shapes, values, gradients, arguments, again, unstable, only, time, syntax, …
    message: str = ""  # one line: "attention is wrong"
    called: str = ""
    got: str = ""
    wanted: str = ""
    likely: tuple[Likely, ...] = ()  # most likely first
    only: str = ""  # "B = 1": the part is right only then
    line: Line | None = None
    right: tuple[str, ...] = ()  # parts that passed
    remarks: tuple[str, ...] = ()  # no failures: left-over threads, NaN for a blind query
    printed: str = ""  # what the learner's code printed
    seconds: float = 0.0
    picture: str = field(default="", repr=False)  # of what the learner's own parts do, after passing

    @property
    def passed(self) -> bool:
        return self.status == PASSED

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(row: dict[str, Any]) -> "Verdict":
        row = dict(row)
        row["likely"] = tuple(Likely(**item) for item in row["likely"])
        row["line"] = None if row["line"] is None else Line(**row["line"])
        for name in ("right", "remarks"):
            row[name] = tuple(row[name])
        return Verdict(**row)

    def rows(self) -> list[tuple[str, str]]:
        """The lines of the verdict: a word, and what it says."""
        rows = [("called", self.called), ("got", self.got), ("wanted", self.wanted)]
        if self.likely:
            rows.append(("likely", self.likely[0].say))
            rows += [("or", other.say) for other in self.likely[1:2]]
        if self.line is not None:
            rows.append((f"{'near' if self.line.near else 'line'} {self.line.number}", self.line.text.strip()))
        rows += [("remark", remark) for remark in self.remarks]
        if self.printed:
            rows.append(("printed", self.printed.rstrip()))
        return [(word, said) for word, said in rows if said]

    def __str__(self) -> str:
        rows = self.rows()
        width = max((len(word) for word, _ in rows), default=0)
        indent = "\n" + " " * (width + 4)
        return "\n".join(
            [self.message, *(f"  {word:<{width}}  {said.replace(chr(10), indent)}" for word, said in rows)]
        )

    def _repr_html_(self) -> str:
        colour = {PASSED: "#1a7f37", UNWRITTEN: "#9a6700"}.get(self.status, "#cf222e")
        cell = "padding:1px 12px 1px 0;text-align:left;vertical-align:top;border:none;background:none"
        body = "".join(
            f'<tr><td style="{cell};color:#777">{html.escape(word)}</td>'
            f'<td style="{cell}"><code style="white-space:pre-wrap">{html.escape(said)}</code></td></tr>'
            for word, said in self.rows()
        )
        picture = f'<pre style="line-height:1.1">{html.escape(self.picture)}</pre>' if self.picture else ""
        return f'<div><b style="color:{colour}">{html.escape(self.message)}</b><table>{body}</table>{picture}</div>'
