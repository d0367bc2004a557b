"""A report as text: what was found first, then what could not be asked, then what passed."""

from clearhead.doctor.finding import Finding, Report
from clearhead.doctor.probes import PROBES


def text(report: Report) -> str:
    """The whole report, for a terminal or a log."""
    lines = [f"{report.name}: {verdict(report)}"]
    for finding in report.findings:
        lines += ["", *told(finding)]
    if report.causes:
        lines += ["", "most likely"]
        for number, cause in enumerate(report.causes[:3], 1):
            lines += [
                f"  {number}. {cause.title}",
                f"     wrong  {cause.wrong}",
                f"     right  {cause.right}",
                f"     {cause.why}",
                f"     {cause.docs}",
            ]
    if report.not_armed:
        lines += ["", "not armed (nothing is known about these)"]
        lines += [f"  {name:<11} {reason}" for name, reason in report.not_armed.items()]
    if report.passed:
        lines += ["", "passed"]
        lines += [f"  {name:<11} {PROBES[name]}" for name in report.passed]
    return "\n".join(lines)


def verdict(report: Report) -> str:
    errors, warnings, notes = len(report.errors), len(report.warnings), len(report.notes)
    if not errors and not warnings:
        noted = f"; {notes} note{'s' * (notes > 1)}" if notes else ""
        return f"healthy, as far as {len(report.passed)} probes can see{noted}"
    counts = ((errors, "error"), (warnings, "warning"), (notes, "note"))
    return ", ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counts if count)


def told(finding: Finding) -> list[str]:
    lines = [f"{finding.severity.upper()}  {finding.id}", f"  {finding.message}"]
    lines += [f"  at {line}" for line in finding.where]
    if finding.causes:
        lines.append(f"  likely: {'; '.join(cause.title for cause in finding.causes)}")
    return lines
