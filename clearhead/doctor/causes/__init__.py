"""From findings to causes: each known cause says how well the pattern of all findings fits it.

One bug makes several probes fail, and one probe fails for several bugs; which fail together, and how, tells them
apart. A cause's score is between 0 (does not fit) and 1 (hardly anything else looks like this).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from clearhead.doctor.finding import Cause, Finding

AREAS = ("masks", "shapes", "positions", "decoding", "parameters", "numbers", "training")


class Facts:
    """What was found, to be asked in the words of the probes."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings
        self.ids = {finding.id for finding in findings}

    def has(self, *ids: str) -> bool:
        """Were all of these found?"""
        return all(id in self.ids for id in ids)

    def none(self, *ids: str) -> bool:
        """Were none of these found?"""
        return not any(id in self.ids for id in ids)

    def of(self, id: str, key: str, default: Any = None) -> Any:
        """A piece of evidence of the first finding with this id."""
        for finding in self.findings:
            if finding.id == id:
                return finding.evidence.get(key, default)
        return default

    def among(self, id: str, key: str, *values: Any) -> bool:
        """Does any finding with this id have one of these values?"""
        return any(finding.evidence.get(key) in values for finding in self.findings if finding.id == id)

    def scores(self, key: str) -> Any:
        """What stood in the scores of future tokens, where the future was visible."""
        return self.of("future.visible", "scores", {}).get(key)

    def only(self, *ids: str) -> bool:
        """Was nothing found but these (and what always follows: other outputs than the reference)?"""
        return self.ids <= {*ids, "parity.differs", "generate.not-greedy"}


Score = Callable[[Facts], float]
Known = tuple[Cause, Score, tuple[str, ...]]  # a cause, how well it fits, and the findings it explains


def known() -> list[Known]:
    """Every cause the doctor can name."""
    return [row for area in AREAS for row in import_module(f"clearhead.doctor.causes.{area}").CAUSES]


def diagnose(findings: Sequence[Finding]) -> tuple[tuple[Cause, ...], list[Finding]]:
    """The causes that fit, best first; and the findings with the best three that explain each of them."""
    facts = Facts(findings)
    ranked = [(score(facts), number, cause, explains) for number, (cause, score, explains) in enumerate(known())]
    ranked = sorted((row for row in ranked if row[0] > 0), key=lambda row: (-row[0], row[1]))
    causes = tuple(cause for _, _, cause, _ in ranked)
    told = []
    for finding in findings:
        fitting = [cause for _, _, cause, explains in ranked if finding.id in explains or finding.probe in explains]
        told.append(replace(finding, causes=tuple(fitting[:3])))
    return causes, told
