"""`clearhead doctor TARGET`: examine a model, described or not, and say what is wrong with it.

Exit status: 0 healthy, 1 at least one error was found (with --strict: or a warning), 2 it could not be examined.
"""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.options import Force, refuse_to_replace
from clearhead.errors import InputError, require

if TYPE_CHECKING:
    from clearhead.doctor.baseline import Compared
    from clearhead.doctor.finding import Report
    from clearhead.doctor.infer import Inferred


class Format(StrEnum):
    """How the report is printed."""

    text = "text"
    json = "json"
    github = "github"


def doctor(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="module:name, file.py:name or file.py: a description or a model.")
    ],
    only: Annotated[list[str] | None, typer.Option(help="Run this probe only; can be given several times.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out probes that train or use long inputs.")] = False,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the inferred description here, to keep and correct.")
    ] = None,
    format: Annotated[
        Format, typer.Option("--format", help="text, json, or github: annotations with file and line.")
    ] = Format.text,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings give status 1 too.")] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Findings listed here are known: only others count.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Accept what is found now: list it here, give status 0.")
    ] = None,
    force: Force = False,
) -> None:
    """Find silent bugs in a PyTorch Transformer: masks, shapes, positions, cache, loss, training.

    TARGET is a model: a class, a function that builds one, or a file with one. How it is built and called is inferred
    from its signatures and by trying, and said in the report; --write keeps it as a description to correct. Or TARGET
    is such a description (docs/doctor.md). Examining a model imports and runs its code: do it with code you trust.

    Status: 0 healthy, 1 errors found, 2 it could not be examined.

    \b
    Examples:
      clearhead doctor mypackage.model:GPT
      clearhead doctor path/to/model.py
      clearhead doctor model.py:GPT --write spec.py
      clearhead doctor spec.py --quick
      clearhead doctor mypackage.model:spec --only future --only cache
      clearhead doctor model.py:GPT --json | jq .findings
      clearhead doctor model.py:GPT --format github --baseline doctor.json
      clearhead doctor transformers:GPT2LMHeadModel
    """
    from clearhead.doctor.infer.target import describe_target

    require(not (baseline and write_baseline), "--baseline reads and --write-baseline writes: give one of them")
    if write is not None:
        require(write.suffix == ".py", f"--write {write}: a description is Python; its name must end in .py")
        refuse_to_replace(write, force)  # perhaps it was corrected by hand
    inferred = describe_target(target, write.parent if write is not None else None)
    if write is not None:
        save(inferred, write, target)
    report = examined(inferred, only, quick)
    if write_baseline is not None:
        from clearhead.doctor import baseline as baselines

        count = baselines.write(write_baseline, report)
        print(f"{count} finding{'s' * (count != 1)} accepted in {write_baseline}", file=sys.stderr)
    compared = against(report, baseline)
    show(compared, inferred, Format.json if as_json else format)
    counted = compared.report.findings if strict else compared.report.errors
    raise typer.Exit(1 if counted and write_baseline is None else 0)


def save(inferred: "Inferred", path: Path, target: str) -> None:
    """Write an inferred description."""
    require(bool(inferred.code), f"{target} is described already: there is nothing to write")
    try:
        path.write_text(inferred.code, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    print(f"the description is in {path}: clearhead doctor {path}", file=sys.stderr)


def examined(inferred: "Inferred", only: list[str] | None, quick: bool) -> "Report":
    """The report; whatever the model raises is told with its line."""
    from clearhead.doctor.examine import check
    from clearhead.doctor.infer.load import quiet
    from clearhead.doctor.infer.raised import told

    def run(progress: Any = None) -> "Report":
        with quiet():
            return check(inferred.spec, only, quick, progress=progress)

    try:
        if not sys.stderr.isatty():
            return run()
        from rich.console import Console

        with Console(stderr=True).status("examining") as status:
            return run(lambda name: status.update(f"examining: {name}"))
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"the model could not be examined: it raised {told(error)}") from error


def against(report: "Report", path: Path | None) -> "Compared":
    """What is left of a report beside a baseline."""
    from clearhead.doctor import baseline as baselines

    if path is None:
        return baselines.Compared(report, (), ())
    ran = [*report.passed, *(finding.probe for finding in report.findings)]
    return baselines.compare(report, baselines.read(path), ran)


def show(compared: "Compared", inferred: "Inferred", format: Format) -> None:
    """Print a report: as text with what was assumed, as JSON, or as annotations."""
    from clearhead.cli import doctor_report

    report = compared.report
    if format is Format.json:
        told = report.to_json() | doctor_report.assumptions(inferred) | doctor_report.known(compared)
        print(json.dumps(told, indent=2, ensure_ascii=False))
    elif format is Format.github:
        from clearhead.doctor.github import annotations, place_of

        place = inferred.place or place_of(inferred.spec.build)
        for line in (*annotations(report, place), *doctor_report.gone_notices(compared)):
            print(line)
    else:
        if sys.stdout.isatty():
            doctor_report.show(report)
        else:
            print(report)
        for line in (*doctor_report.known_lines(compared), *doctor_report.assumed_lines(inferred)):
            print(line)
