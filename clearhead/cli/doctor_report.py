"""The doctor's report for a terminal: findings in colour, wrong and right lines beside each other."""

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from clearhead.doctor.finding import ERROR, Finding, Report
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
    colour = "red" if finding.severity == ERROR else "yellow"
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
