"""What the doctor says: findings with a counterexample, probes that passed, and probes that could not be armed.

An error is a violated property; a warning is worth a look; a note tells a convention and counts for nothing.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

ERROR, WARNING, NOTE = "error", "warning", "note"


class NotArmed(Exception):
    """A probe cannot say anything about this model; the message says what it would need."""


@dataclass(frozen=True)
class Cause:
    """An explanation: how the wrong code often looks, how the right code looks, and why it matters."""

    id: str
    title: str
    wrong: str
    right: str
    why: str

    @property
    def docs(self) -> str:
        return f"docs/doctor.md#{self.id}"


@dataclass(frozen=True)
class Finding:
    """Something is wrong: what was asked, the smallest input that shows it, and how sure the measurement is."""

    id: str  # stable: probe.what
    severity: str
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)
    where: tuple[str, ...] = ()  # file:line of the operation that was watched, with its code
    causes: tuple[Cause, ...] = ()

    @property
    def probe(self) -> str:
        return self.id.split(".")[0]


@dataclass(frozen=True)
class Report:
    """The result of an examination."""

    name: str
    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    not_armed: dict[str, str]  # probe: what it would need
    causes: tuple[Cause, ...] = ()  # most likely first, for all findings together
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == WARNING)

    @property
    def notes(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == NOTE)

    @property
    def healthy(self) -> bool:
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        """Everything but the times, in plain types: the same model gives the same text."""
        findings = []
        for finding in self.findings:
            row = asdict(finding)
            row["causes"] = [cause.id for cause in finding.causes]
            row["evidence"] = {key: plain(value) for key, value in finding.evidence.items()}
            findings.append(row)
        causes = [{**asdict(cause), "docs": cause.docs} for cause in self.causes]
        return {
            "name": self.name,
            "healthy": self.healthy,
            "findings": findings,
            "causes": causes,
            "passed": list(self.passed),
            "not_armed": self.not_armed,
        }

    def __str__(self) -> str:
        from clearhead.doctor.render import text

        return text(self)


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    return str(value)
