"""`clearhead learn finish`: the learner's model is trained, compared with ours and saved as a run."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clearhead.cli.learn_view import screen, show_verdict
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.learn.folder import Folder

TASKS = ("copy", "dates")
HOURS = 4.0  # of processor time that training may take


def finish_course(folder: "Folder", task: str, run: Path | None, steps: int | None) -> None:
    """Say whose parts are used, train with a bar, and say what can now be done with the run."""
    if task not in TASKS:
        raise InputError(f"--task {task}: {' or '.join(TASKS)} is wanted")
    path = folder.path / "runs" / task if run is None else run.resolve()
    if path.exists():
        raise InputError(f"{path} is already there: give another --run, or remove it")
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from clearhead.learn.process import Checker

    console = screen()
    others = [name for name in folder.order if name not in folder.own()]
    if others:
        console.print(f"ours, because not passed: {', '.join(others)}", style="yellow")
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Checker() as checker, Progress(*columns, console=errors, disable=not errors.is_terminal) as bars:
        bar = bars.add_task(f"learning {task}", total=None)
        verdict = checker.check(
            folder.path,
            "train",
            folder.own(),
            lambda done, total, what: bars.update(bar, completed=done, total=total),
            task=task,
            run=str(path),
            steps=steps,
            seconds=3600 * HOURS,
        )
    show_verdict(console, verdict)
    if not verdict.passed:
        raise typer.Exit(1)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    example = '"3 1 2"' if task == "copy" else '"Samstag, 3. März 2029"'
    console.print("This is the model you wrote. Everything works on it:")
    for line in (f"echo {example} | clearhead translate {shown}", f"clearhead attention {shown} {example}",
                 f"clearhead evaluate {shown}"):  # fmt: skip
        console.print(f"  {line}")
