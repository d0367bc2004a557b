"""A baseline: findings that are known and accepted, so that a check in CI speaks up about new ones only.

An entry is the model, the finding's id and the code of the line it was seen at. Line numbers and measured sizes are
left out: code that moves, or a value that changes in the third digit, is no news.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clearhead.disk import write_whole
from clearhead.doctor.finding import Finding, Report
from clearhead.errors import InputError
from clearhead.reading import parse_json, read_whole

Entry = tuple[str, str, str]  # model, id, code


@dataclass(frozen=True)
class Compared:
    """A report without what the baseline accepts, how many findings that were, and what is accepted but gone."""

    report: Report
    accepted: tuple[Finding, ...]
    gone: tuple[Entry, ...]


def entry(report: Report, finding: Finding) -> Entry:
    """What identifies a finding: not where its line stands, but what the line says."""
    place = finding.where[0] if finding.where else ""
    match = re.match(r"(?P<file>.*?):(?P<line>\d+)(?:: (?P<code>.*))?$", place)
    if match is None:
        return report.name, finding.id, place
    return report.name, finding.id, " ".join((match["code"] or Path(match["file"]).name).split())


def write(path: Path, report: Report) -> int:
    """Accept everything in a report. Entries of other models in the file stay."""
    kept = [one for one in (read(path) if path.exists() else []) if one[0] != report.name]
    entries = sorted([*kept, *(entry(report, finding) for finding in report.findings)])
    rows = [{"model": model, "finding": id, "code": code} for model, id, code in entries]
    write_whole(path, json.dumps({"accepted": rows}, indent=2, ensure_ascii=False) + "\n")
    return len(report.findings)


def read(path: Path) -> list[Entry]:
    """The entries of a baseline file; a broken one is told."""
    if not path.exists():
        raise InputError(f"there is no baseline {path}; write one with --write-baseline {path}")
    content = read_whole(path)
    try:
        rows: Any = parse_json(content, path)["accepted"]
        return [(row["model"], row["finding"], row.get("code", "")) for row in rows]
    except (InputError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f'{path} is no baseline: wanted {{"accepted": [{{"model", "finding", "code"}}]}}') from error


def compare(report: Report, entries: list[Entry], ran: list[str]) -> Compared:
    """Take out what is accepted. Only entries of probes that ran can be gone."""
    left = Counter(one for one in entries if one[0] == report.name)
    fresh, accepted = [], []
    for finding in report.findings:
        key = entry(report, finding)
        if left[key] > 0:
            left[key] -= 1
            accepted.append(finding)
        else:
            fresh.append(finding)
    gone = tuple(one for one in left.elements() if one[1].split(".")[0] in ran)
    causes = report.causes if fresh else ()
    return Compared(replace(report, findings=tuple(fresh), causes=causes), tuple(accepted), gone)
