"""A report as annotations of a pull request: one `::error file=…,line=…::message` a finding, as GitHub reads them."""

import inspect
import os
import re
from typing import Any

from clearhead.doctor.finding import ERROR, Finding, Report


def place_of(thing: Any) -> str:
    """file:line where a class or function is defined; "" where that cannot be told."""
    try:
        thing = inspect.unwrap(thing)
        file, (_, line) = inspect.getsourcefile(thing), inspect.getsourcelines(thing)
    except (OSError, TypeError):
        return ""
    return f"{file}:{line}" if file else ""


def annotations(report: Report, place: str = "") -> list[str]:
    """A line for each finding; one that was watched at no line stands at the model (`place`)."""
    return [annotation(finding, finding.where[0] if finding.where else place) for finding in report.findings]


def annotation(finding: Finding, place: str) -> str:
    kind = "error" if finding.severity == ERROR else "warning"
    properties = [f"title={escaped(f'clearhead doctor: {finding.id}', True)}"]
    match = re.match(r"(?P<file>.+?):(?P<line>\d+)(?::|$)", place)
    if match is not None:
        file = os.path.relpath(match["file"])
        properties[:0] = [f"file={escaped(file, True)}", f"line={match['line']}"]
    likely = f"\nlikely: {'; '.join(cause.title for cause in finding.causes)}" if finding.causes else ""
    return f"::{kind} {','.join(properties)}::{escaped(finding.message + likely)}"


def escaped(text: str, in_property: bool = False) -> str:
    """GitHub's commands end at the line; in properties, colons and commas are taken too."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if in_property else text
