"""The doctor's report for a terminal: findings in colour, wrong and right lines beside each other.

Below it stands what was assumed where the description was inferred, as sentences and as code, and what a baseline
accepted.
"""

from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from clearhead.doctor.baseline import Compared
from clearhead.doctor.finding import ERROR, WARNING, Finding, Report
from clearhead.doctor.infer import Inferred
from clearhead.doctor.probes import PROBES
from clearhead.doctor.render import verdict


def show(report: Report) -> None:
    """Print a report with colours and boxes."""
    console = Console(highlight=False)
    style = "bold green" if report.healthy else "bold red"
    console.print(Text.assemble((report.name, "bold"), ": ", (verdict(report), style)))
    for finding in report.findings:
        console.print(panel(finding))
    if report.causes:
        console.print(causes(report))
    if report.not_armed:
        title = "not armed: nothing is known about these"
        table = Table(title=title, box=None, title_justify="left", title_style="yellow")
        table.add_column(style="yellow")
        table.add_column()
        for name, reason in report.not_armed.items():
            table.add_row(name, reason)
        console.print(table)
    if report.passed:
        table = Table(title="passed", box=None, title_justify="left", title_style="green")
        table.add_column(style="green")
        table.add_column()
        for name in report.passed:
            table.add_row(name, PROBES[name])
        console.print(table)


def panel(finding: Finding) -> Panel:
    colour = {ERROR: "red", WARNING: "yellow"}.get(finding.severity, "blue")
    body = Text(finding.message)
    for line in finding.where:
        body.append(f"\nat {line}", style="dim")
    if finding.causes:
        body.append("\nlikely: " + "; ".join(cause.title for cause in finding.causes), style="italic")
    return Panel(body, title=f"{finding.severity} {finding.id}", title_align="left", border_style=colour)


def causes(report: Report) -> Table:
    table = Table(title="most likely", box=None, title_justify="left", title_style="bold", padding=(0, 2, 1, 0))
    table.add_column()
    table.add_column()
    for number, cause in enumerate(report.causes[:3], 1):
        inner = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
        inner.add_column()
        inner.add_column()
        inner.add_row(Text("wrong", style="red"), Syntax(cause.wrong, "python", background_color="default"))
        inner.add_row(Text("right", style="green"), Syntax(cause.right, "python", background_color="default"))
        text = Text(f"{cause.title}\n", style="bold")
        text.append(f"{cause.why}\n{cause.docs}", style="not bold")
        table.add_row(f"{number}.", text)
        table.add_row("", inner)
    return table


# ---- what was assumed ---------------------------------------------------------------------------------------------


def assumptions(inferred: Inferred) -> dict[str, Any]:
    """For JSON: what was assumed, what was not found out, and the description as code."""
    if not inferred.code:
        return {}
    left_open = [{"probe": probe, "reason": reason, "add": line} for probe, reason, line in inferred.open]
    return {"assumed": list(inferred.assumed), "not_found_out": left_open, "description": inferred.code}


def assumed_lines(inferred: Inferred) -> list[str]:
    """For people: the same, the code last, to be kept with --write."""
    if not inferred.code:
        return []
    lines = ["", "assumed (nobody described this model; correct what is wrong)"]
    lines += [f"  {line}" for line in inferred.assumed]
    if inferred.open:
        lines += ["", "not found out (one line of a description would tell)"]
        for probe, reason, line in inferred.open:
            lines += [f"  {probe:<11} {reason}", f"              add: {line}"]
    lines += ["", "as code (--write spec.py keeps it)"]
    return [*lines, *(f"  {line}" if line else "" for line in inferred.code.rstrip().splitlines())]


# ---- what a baseline accepted -------------------------------------------------------------------------------------


def known(compared: Compared) -> dict[str, Any]:
    """For JSON: what the baseline accepted, and what of it is gone."""
    if not compared.accepted and not compared.gone:
        return {}
    gone = [{"model": model, "finding": id, "code": code} for model, id, code in compared.gone]
    return {"accepted": [finding.id for finding in compared.accepted], "gone": gone}


def known_lines(compared: Compared) -> list[str]:
    lines = []
    if compared.accepted:
        lines += ["", "accepted by the baseline", *(f"  {finding.id}" for finding in compared.accepted)]
    if compared.gone:
        lines += ["", "in the baseline, but gone (take it out)", *(f"  {gone_text(one)}" for one in compared.gone)]
    return lines


def gone_notices(compared: Compared) -> list[str]:
    return [f"::notice::clearhead doctor: {gone_text(one)} is in the baseline, but gone" for one in compared.gone]


def gone_text(one: tuple[str, str, str]) -> str:
    return f"{one[1]}{f' at {one[2]}' if one[2] else ''}"
