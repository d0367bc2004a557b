"""From findings to causes: each known cause has a rule that says how well the pattern of all findings fits it.

One bug makes several probes fail, and one probe fails for several bugs; which fail together, and how, tells them
apart. A rule says a number between 0 (does not fit) and 1 (hardly anything else looks like this); how much that is
worth, and what the findings say beyond it, was learned from planted bugs: see `ranking.py`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from clearhead.doctor.finding import Cause, Finding
from clearhead.doctor.ranking import Ranking, observe, stored

LEAST = 0.02  # the probability below which a cause that no rule speaks for is not worth a reader's time
AREAS = ("masks", "shapes", "positions", "decoding", "parameters", "numbers", "training", "sublayers", "state")


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


def diagnose(findings: Sequence[Finding], passed: Collection[str]) -> tuple[tuple[Cause, ...], list[Finding]]:
    """The causes that fit, likeliest first; and the findings with the best three that explain each of them."""
    facts = Facts(findings)
    causes = {cause.id: cause for cause, _, _ in known()}
    explains = {cause.id: explained for cause, _, explained in known()}
    case = observe(findings, passed, {cause.id: fits(facts) for cause, fits, _ in known()})
    ranked = [id for id, chance in learned().rank(case) if chance > LEAST or case.fits.get(id)]
    told = []
    for finding in findings:
        fitting = [causes[id] for id in ranked if {finding.id, finding.probe} & set(explains[id])]
        told.append(replace(finding, causes=tuple(fitting[:3])))
    return tuple(causes[id] for id in ranked), told


@cache
def learned() -> Ranking:
    """What the planted bugs teach."""
    return Ranking(stored(), {cause.id: explains for cause, _, explains in known()})
