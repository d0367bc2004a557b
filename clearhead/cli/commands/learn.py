"""`clearhead learn`: write the Transformer yourself, exercise by exercise, and be told what is wrong and why."""

import json
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.usage import STYLE
from clearhead.errors import InputError

app = typer.Typer(
    name="learn",
    **{**STYLE, "no_args_is_help": False},
)

Name = Annotated[
    str | None, typer.Argument(metavar="EXERCISE", help="Its name, number or file; the current one unless given.")
]
HERE = Path()


@app.callback(invoke_without_command=True)
def learn(context: typer.Context) -> None:
    """Write the Transformer yourself, exercise by exercise, and be told what is wrong and why.

    Without a command, in a folder of the course: where you are, what to do, and a check of what you wrote.

    \b
    Examples:
      clearhead learn start mine                 # a folder with the exercises
      cd mine && clearhead learn                 # what is next; after writing, what is wrong
      clearhead learn watch                      # the same at every save
    """
    if context.invoked_subcommand is None:
        check(None)


@app.command()
def start(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make.")],
    course: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML with exercises of a teacher's choice and order.")
    ] = None,
) -> None:
    """Make a folder with the exercises. Files that are there already stay as they are.

    \b
    Examples:
      clearhead learn start mine
      clearhead learn start lesson --course afternoon.toml
    """
    from clearhead.cli.options import refuse_a_file
    from clearhead.learn.session import start as make

    refuse_a_file(folder, "FOLDER")
    made = make(folder, course)
    typer.echo(f"{len(made.order)} exercises in {folder}/. Next: cd {folder} && clearhead learn")


@app.command()
def check(exercise: Name = None) -> None:
    """Check an exercise: the current one, or any by name.

    \b
    Examples:
      clearhead learn check
      clearhead learn check attention
    """
    from clearhead.cli.learn_view import header, screen, show_checked, show_how, show_next
    from clearhead.learn.folder import read_folder
    from clearhead.learn.process import Checker

    folder = read_folder(HERE)
    console = screen()
    if exercise is None and folder.current is None:
        show_next(console, folder)
        return
    with Checker() as checker:
        checker.warm()  # it imports torch while we do
        from clearhead.learn.session import check_exercise

        name = folder.find(exercise)
        if name == folder.current:
            folder.open_current()
        result = check_exercise(folder, name, checker)
        if result.verdict.status == "unwritten" and not result.verdict.right:
            header(console, folder, result.exercise)
            console.print(result.verdict.message, style="yellow")
            show_how(console)
            return
        show_checked(console, folder, result)
        if result.newly:
            show_next(console, folder)
    if not result.verdict.passed and result.verdict.status != "unwritten":
        raise typer.Exit(1)


@app.command()
def watch() -> None:
    """Check at every save, until q is pressed. Keys: h hint, n next, s skip, l list, q quit.

    \b
    Example:
      clearhead learn watch
    """
    from clearhead.cli.learn_watch import watch_folder
    from clearhead.learn.folder import read_folder

    watch_folder(read_folder(HERE))


@app.command()
def hint(exercise: Name = None) -> None:
    """The next hint: first a question, then the shapes, then the line.

    \b
    Examples:
      clearhead learn hint
      clearhead learn hint attention
    """
    from clearhead.cli.learn_view import hint_lines
    from clearhead.learn.exercises import course
    from clearhead.learn.folder import read_folder

    folder = read_folder(HERE)
    name = folder.find(exercise)
    if name != folder.current:
        typer.echo(f"{folder.number(name)} {name}   (without a name: the hints of the current exercise, one by one)")
    with folder.changing(name) as record:
        record.hints = min(3, record.hints + 1)
    for number in range(1, record.hints + 1):
        typer.echo(hint_lines(course()[name], number))
    if record.hints == 3:
        typer.echo("there are no more; our own version: clearhead learn solution")


@app.command()
def skip(exercise: Name = None) -> None:
    """Leave an exercise for later; the next ones then use our version of it.

    \b
    Example:
      clearhead learn skip
    """
    from clearhead.cli.learn_view import screen, show_next
    from clearhead.learn.folder import PASSED, SKIPPED, read_folder

    folder = read_folder(HERE)
    name = folder.find(exercise)
    if folder.record(name).status == PASSED:
        raise InputError(f"{name} is passed: there is nothing to skip")
    folder.close(name, SKIPPED)
    typer.echo(f"skipped {name}: later exercises use ours; `clearhead learn check {name}` returns to it")
    show_next(screen(), folder)


@app.command()
def reset(
    exercise: Name = None,
    force: Annotated[bool, typer.Option("--force", help="Do not keep what was written.")] = False,
) -> None:
    """Write an exercise anew as it was. What you wrote is kept beside it, as NAME.old.py, unless you say --force.

    \b
    Examples:
      clearhead learn reset
      clearhead learn reset attention --force
    """
    from clearhead.learn.folder import read_folder
    from clearhead.learn.session import reset_exercise

    folder = read_folder(HERE)
    kept = reset_exercise(folder, folder.find(exercise), force)
    typer.echo(f"written anew{f'; what you had is {kept}' if kept else ''}")


@app.command()
def solution(exercise: Name = None) -> None:
    """Print our own version of an exercise.

    \b
    Examples:
      clearhead learn solution
      clearhead learn solution attention > ex04_ours.py
    """
    from clearhead.learn.folder import read_folder
    from clearhead.learn.session import solution as ours

    folder = read_folder(HERE)
    typer.echo(ours(folder.find(exercise)), nl=False)


@app.command("list")
def list_() -> None:
    """All exercises: which are passed, how long after they came up, which is next.

    \b
    Example:
      clearhead learn list
    """
    from clearhead.cli.learn_view import screen, show_list
    from clearhead.learn.folder import read_folder

    show_list(screen(), read_folder(HERE))


@app.command()
def bug(exercise: Name = None) -> None:
    """Check a file in which you were to find a bug: the one of the exercise passed last, unless named.

    \b
    Examples:
      clearhead learn bug
      clearhead learn bug attention
    """
    from clearhead.cli.learn_view import screen, show_bug
    from clearhead.learn.folder import read_folder
    from clearhead.learn.process import Checker
    from clearhead.learn.session import check_bug, find_bug

    folder = read_folder(HERE)
    with Checker() as checker:
        checker.warm()
        name = find_bug(folder, exercise)
        result = check_bug(folder, name, checker)
    show_bug(screen(), name, result)
    if not result.verdict.passed:
        raise typer.Exit(1)


@app.command()
def finish(
    task: Annotated[str, typer.Option(metavar="TASK", help="What to learn: copy or dates.")] = "copy",
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write the run; runs/TASK unless given.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, metavar="N", help="Updates; unless given, 1000 for copy and 2600 for dates."
        ),
    ] = None,
) -> None:
    """Train the model you wrote with the loop you wrote, compare it with ours, and save it as an ordinary run.

    Exercises that are not passed are ours. The weights are copied by name, logits and gradients compared, and the run
    then works with translate, attention, evaluate and all the others.

    \b
    Examples:
      clearhead learn finish                     # copy, in a minute or two
      clearhead learn finish --task dates        # dates: about ten minutes
    """
    from clearhead.cli.learn_finish import finish_course
    from clearhead.learn.folder import read_folder

    finish_course(read_folder(HERE), task, run, steps)


@app.command()
def grade(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDERS", help="Folders of learners.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a folder.")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="JUnit XML, as continuous integration reads it.")] = False,
    course: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A TOML with the exercises to grade; those of each folder if not."),
    ] = None,
) -> None:
    """Check every exercise of many folders, each in a copy. What an exercise needs of a failed one is ours.

    \b
    Examples:
      clearhead learn grade submissions/*
      clearhead learn grade submissions/* --json > grades.jsonl
      clearhead learn grade mine --junit > junit.xml
    """
    from clearhead.learn.process import Checker

    if as_json and junit:
        raise InputError("--json and --junit: choose one")
    with Checker() as checker:
        checker.warm()
        from clearhead.learn.grading import grade_folders, junit_xml, table

        grades = grade_folders(folders, checker, course)
        if junit:
            typer.echo(junit_xml(list(grades)), nl=False)
            return
        for one in grades:
            typer.echo(json.dumps(one.to_json()) if as_json else table(one))


@app.command()
def export(
    notebook: Annotated[Path, typer.Option("--notebook", metavar="DIR", help="Write the course there, as notebooks.")],
    force: Annotated[bool, typer.Option("--force", help="Replace notebooks that are already there.")] = False,
) -> None:
    """Write the course as Jupyter notebooks, one an exercise.

    \b
    Example:
      clearhead learn export --notebook notebooks
    """
    from clearhead.cli.options import refuse_a_file
    from clearhead.learn.notebooks import write_notebooks

    refuse_a_file(notebook, "--notebook")
    written = write_notebooks(notebook, force)
    typer.echo(f"{len(written)} notebooks in {notebook}/")
