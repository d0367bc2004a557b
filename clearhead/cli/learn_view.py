"""What `clearhead learn` says, on a terminal or into a pipe."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from clearhead.errors import visible

if TYPE_CHECKING:
    from clearhead.learn.exercise import Exercise
    from clearhead.learn.folder import Folder, Record
    from clearhead.learn.session import Checked
    from clearhead.learn.verdict import Verdict

STYLES = {"called": "dim", "got": "red", "wanted": "green", "likely": "bold"}
WIDTH = 16


def screen() -> Console:
    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def header(console: Console, folder: "Folder", exercise: "Exercise") -> None:
    """4/14 attention    ex04_attention.py, and the question."""
    from clearhead.learn.exercises import file_names

    title = f"{folder.number(exercise.name)} {exercise.name}"
    console.print(Text(f"{title:<{WIDTH}}  {file_names()[exercise.name]}", "bold"))
    console.print(f"{exercise.question} Fill in {', then '.join(exercise.parts)}.")


def show_verdict(console: Console, verdict: "Verdict", label: str = "") -> None:
    """The message, and the lines that explain it."""
    right = f"{', '.join(verdict.right)}: right; " if verdict.right and not verdict.passed else ""
    style = "green" if verdict.passed else "yellow" if verdict.status == "unwritten" else "red"
    console.print(Text(f"{label}{right}{visible(verdict.message)}", style))
    rows = verdict.rows()
    if verdict.status == "unwritten":  # the message has the line already
        rows = [row for row in rows if not row[0].startswith("line")]
    width = max((len(word) for word, _ in rows), default=0)
    for word, said in rows:
        for number, line in enumerate(said.split("\n")):
            lead = f"  {word if number == 0 else '':<{width}}  "
            console.print(Text.assemble((lead, "dim"), (visible(line), STYLES.get(word, ""))))


def show_checked(console: Console, folder: "Folder", checked: "Checked") -> None:
    """A verdict on an exercise; after passing, what has become possible, and what is next."""
    exercise, verdict = checked.exercise, checked.verdict
    label = f"{folder.number(exercise.name)} {exercise.name:<{WIDTH - 4}}"
    if not verdict.passed:
        show_verdict(console, verdict, label)
        if verdict.status == "unwritten":
            show_how(console)
            return
        console.print("next: mend it, or  clearhead learn hint", style="dim")
        return
    record = folder.record(exercise.name)
    console.print(Text(f"{label}{how_passed(record)}", "green bold"))
    show_after(console, exercise, verdict)
    if checked.bug:
        console.print(f"  find the bug (optional): {checked.bug}, then  clearhead learn bug", style="dim")


def show_after(console: Console, exercise: "Exercise", verdict: "Verdict") -> None:
    console.print(f"  {exercise.after}")
    for line in verdict.picture.splitlines():
        console.print(f"    {line}")
    for remark in verdict.remarks:
        console.print(f"  remark: {remark}", style="yellow")
    console.print(f"  ours: {exercise.ours}   lab: clearhead lab run {exercise.lab}", style="dim")


def show_bug(console: Console, name: str, checked: "Checked") -> None:
    """A verdict on a file with a bug: which file it is, and what is asked."""
    from clearhead.learn.session import MOST_CHANGED, bug_file

    show_verdict(console, checked.verdict, "" if checked.bug else f"{bug_file(name)}  ")
    if not checked.verdict.passed:
        how = f"change at most {MOST_CHANGED} lines of {bug_file(name)}, then  clearhead learn bug {name}"
        console.print(f"next: {how}", style="dim")


def show_how(console: Console) -> None:
    """What to do with a part that is not yet written."""
    console.print("next: write it there, then  clearhead learn   (at every save: clearhead learn watch)", style="dim")
    console.print("stuck?  clearhead learn hint", style="dim")


def show_next(console: Console, folder: "Folder") -> None:
    """The exercise that is now the current one, or that there is none left."""
    from clearhead.learn.exercises import course

    name = folder.open_current()
    if name is not None:
        console.print()
        header(console, folder, course()[name])
        return
    skipped = [name for name, record in folder.records.items() if record.status == "skipped"]
    console.print(Text("Every exercise is done." if not skipped else "Nothing is left.", "green bold"))
    if skipped:
        console.print(f"Skipped: {', '.join(skipped)}. `clearhead learn check NAME` returns to one.")
    if "train" in folder.own():
        console.print("Train the model you wrote, and save it as a run:  clearhead learn finish")


def how_passed(record: "Record") -> str:
    """passed 8 minutes after it came up, 1 hint. Out of order nobody knows when it was begun: passed."""
    hints = f", {record.hints} hint{'s' if record.hints > 1 else ''}" if record.hints else ""
    if not 0 < record.opened <= record.closed:
        return f"passed{hints}"
    seconds = record.closed - record.opened
    if seconds < 90:
        took = f"{seconds:.0f} seconds"
    else:
        took = f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
    return f"passed {took} after it came up{hints}"


def show_list(console: Console, folder: "Folder") -> None:
    """Every exercise: how it stands, how long after it came up, whether its file has changed since."""
    from clearhead.learn.exercises import course

    current = folder.current
    if folder.title:
        console.print(folder.title, style="bold")
    for number, name in enumerate(folder.order, 1):
        record = folder.record(name)
        mark = {"passed": "✓", "skipped": "–"}.get(record.status, "▸" if name == current else " ")
        how = how_passed(record) if record.status == "passed" else record.status.replace("open", "")
        bug = ", bug found" if record.bug else ""
        style = {"✓": "green", "▸": "bold"}.get(mark, "")
        console.print(Text(f"{mark} {number:>2} {name:<{WIDTH}}{how}{bug}{folder.changed(name)}", style) + Text(""))
        if name == current:
            console.print(f"     {course()[name].question}", style="dim")
    done = sum(folder.record(name).status == "passed" for name in folder.order)
    console.print(f"{done} of {len(folder.order)} passed", style="dim")


def hint_lines(exercise: "Exercise", number: int) -> str:
    return f"hint {number} of 3: {exercise.hints[number - 1]}"
