"""`clearhead lab`: list the experiments, run them, and write the report."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import refuse_a_file
from clearhead.cli.usage import STYLE
from clearhead.errors import InputError
from clearhead.ranges import MOST_THREADS

app = typer.Typer(
    name="lab",
    help="Claims about Transformers as experiments anyone can rerun.",
    **STYLE,
)

Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="Where results are kept.")]


@app.command("list")
def list_(folder: Folder = Path("runs/lab")) -> None:
    """All experiments: name, arms, about how many minutes it takes on two cores, cells measured so far, claim.

    \b
    Example:
      clearhead lab list
    """
    from clearhead.lab.catalogue import everything
    from clearhead.lab.store import measured

    refuse_a_file(folder, "--folder")
    totals = [0.0, 0.0]
    for experiment in everything():
        shown = []
        for place, quick in enumerate((True, False)):
            minutes, (done, cells) = experiment.minutes[place], measured(experiment, folder, quick)
            totals[place] += minutes * (1 - done / cells)
            shown.append(f"{'quick' if quick else 'full'} {minutes:>5.1f} min, {done:>3} of {cells:>3} cells")
        typer.echo(f"{experiment.name:<20}{len(experiment.arms):>3} arms   {'   '.join(shown)}   {experiment.claim}")
    typer.echo(f"left to measure: quick {totals[0]:.0f} minutes, full {totals[1]:.0f}; estimates, two cores", err=True)


@app.command()
def run(
    names: Annotated[
        list[str], typer.Argument(metavar="NAMES", help="Names of experiments (see `lab list`), or `all`.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes and few seeds: minutes instead of hours.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, metavar="N", help="Seeds for each arm; the experiment's own unless given."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_THREADS, metavar="N", help="Worker processes; one for each core unless given."),
    ] = None,
    pilot: Annotated[bool, typer.Option("--pilot", help="Other seeds, which the report leaves out.")] = False,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, max=100_000, metavar="N", help="Begin nothing new after so long; run again to go on."),
    ] = None,
    folder: Folder = Path("runs/lab"),
) -> None:
    """Run experiments. What is measured already is kept, so an interrupted run goes on where it was.

    \b
    Examples:
      clearhead lab run scaling --quick          # one claim, in about a minute
      clearhead lab run scaling causal-mask      # two, at full size
      clearhead lab run all --quick              # all, in 25 minutes on two cores
      clearhead lab run scaling --seeds 10       # more seeds; none is run twice
      clearhead lab run scaling --pilot          # seeds that no report shows
      clearhead lab run all --minutes 30         # then the same again: it goes on
    """
    import time

    from clearhead.lab.catalogue import everything, find
    from clearhead.lab.report import disagreements
    from clearhead.lab.runner import run as run_experiment

    refuse_a_file(folder, "--folder")
    chosen = everything() if names == ["all"] else [find(name) for name in names]
    failed, unfinished = [], []
    until = None if minutes is None else time.monotonic() + 60 * minutes
    with progress() as bars:
        for experiment in chosen:
            bar = bars.add_task(experiment.name, total=None, what="")

            def tell(done: int, total: int, what: str, bar: object = bar) -> None:
                bars.update(bar, completed=done, total=total, what=what)

            try:
                results = run_experiment(experiment, folder, quick, seeds, jobs, pilot, tell, until)
            except InputError as error:  # the others need not wait for hours because of it
                failed.append(f"{experiment.name}: {error}")
                continue
            if results is None:
                unfinished.append(experiment.name)
                continue
            verdicts = experiment.verdicts(results)
            bars.update(bar, what=", ".join(verdict.word for verdict in verdicts))
            for part, verdict in zip(experiment.parts, verdicts, strict=True):
                typer.echo(f"{experiment.name}: {part.claim} {verdict.word}: {verdict.sentence}.")
            for other in disagreements(experiment, verdicts) if quick else []:
                typer.echo(f"{experiment.name}: at full size {other}; these sizes are small (docs/lab.md)", err=True)
    if unfinished:
        typer.echo(f"time is up; not finished: {', '.join(unfinished)}; the same command goes on", err=True)
    if failed:
        raise InputError(f"could not run {len(failed)} of {len(chosen)} experiments: {'; '.join(failed)}")


@app.command()
def report(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write lab.md, lab.html and lab/.")] = Path(
        "runs/lab/report"
    ),
    folder: Folder = Path("runs/lab"),
) -> None:
    """Write the report of all results: a page of its own (lab.html), Markdown (lab.md), figures and numbers (lab/).

    \b
    Example:
      clearhead lab report --out report
    """
    from clearhead.lab.catalogue import everything
    from clearhead.lab.report import write_report

    refuse_a_file(out, "--out")
    entries = write_report(everything(), folder, out)
    typer.echo(out / "lab.html")
    quick = sum(entry.quick for entry in entries)
    typer.echo(f"{len(entries)} experiments, {quick} of them in quick form", err=True)


def progress():  # type: ignore[no-untyped-def]
    """Bars on a terminal, silence elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
        console=Console(stderr=True),
        disable=not Console(stderr=True).is_terminal,
    )
