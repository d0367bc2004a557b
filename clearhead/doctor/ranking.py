"""Which cause is the likely one? Learned from planted bugs whose causes are known.

Every planted bug was examined once, and what came of it is kept in `evidence.jsonl`: which probes could be armed, what
they found and with what evidence, and which rules of `causes/` fitted. A cause is the likelier, the more often its
bugs looked like the case at hand (naive Bayes): findings count, and so do probes that passed; probes that were not
armed say nothing. How far a rule is to be believed is measured like everything else. `python -m bench.doctor --learn`
examines them all again; `python -m bench.doctor --only ranking` shows how often the cause is among the first three for
bugs of a host, and of a kind, that were left out while learning.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from clearhead.doctor.finding import ERROR, Finding, plain

STRENGTH = 1.0  # how many bugs the expectation before any data is worth, for a finding …
EVIDENCE_STRENGTH = 2.0  # … and for a piece of its evidence
EXPECTED = 0.5  # the chance, before any data, of a finding that the cause is said to explain
# Findings come in groups, and naive Bayes takes each for a witness of its own: their votes count by this much.
WEIGHT = 0.25
FOLLOWING = {"parity.differs", "generate.not-greedy"}  # what nearly every bug leads to
LEVELS = (0.0, 0.5, 0.8)  # what a rule says, in four steps: it does not fit, hardly, well, as hardly anything else


@dataclass(frozen=True)
class Case:
    """What an examination saw, in the words that are counted."""

    found: dict[str, frozenset[str]]  # finding: pieces of its evidence
    armed: frozenset[str]  # probes that had a say
    fits: dict[str, int]  # cause: the step of its rule, where it is not the lowest
    causes: tuple[str, ...] = ()  # the true ones, where they are known
    host: str = ""
    bug: str = ""

    def to_json(self) -> str:
        found = {id: sorted(words) for id, words in sorted(self.found.items())}
        rows = {"host": self.host, "bug": self.bug, "causes": self.causes, "found": found, "armed": sorted(self.armed)}
        return json.dumps({**rows, "fits": self.fits}, ensure_ascii=False)


def from_json(line: str) -> Case:
    row = json.loads(line)
    found = {id: frozenset(words) for id, words in row["found"].items()}
    return Case(found, frozenset(row["armed"]), row["fits"], tuple(row["causes"]), row["host"], row["bug"])


def words(key: str, value: Any) -> Iterable[str]:
    """A piece of evidence as words: numbers by their size, lists by their length and what they name."""
    if isinstance(value, bool) or value is None:
        yield f"{key}={value}"
    elif isinstance(value, int):
        yield f"{key}={value if abs(value) < 4 else 'more'}"
    elif isinstance(value, float):
        size = abs(value)
        yield f"{key}={'none' if size < 1e-6 else 'small' if size < 0.05 else 'middle' if size < 20 else 'large'}"
    elif isinstance(value, str) and len(value) < 40:
        yield f"{key}={value}"
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from words(f"{key}.{name}", item)
    elif isinstance(value, list):
        yield f"{key}#{len(value) if len(value) < 3 else 'many'}"
        if len(value) == 1 or all(isinstance(item, str) for item in value):
            for item in value:
                yield from words(key, item)


def observe(findings: Sequence[Finding], passed: Collection[str], fits: dict[str, float]) -> Case:
    """A case as it is counted; `fits` holds what each rule says."""
    found: dict[str, set[str]] = {}
    for finding in findings:
        held = found.setdefault(finding.id, set())
        held.add(finding.severity)
        for key, value in finding.evidence.items():
            held.update(words(key, plain(value)))
    armed = frozenset(passed) | {finding.probe for finding in findings}
    steps = {cause: sum(fit > level for level in LEVELS) for cause, fit in fits.items()}
    kept = {cause: step for cause, step in steps.items() if step}
    return Case({id: frozenset(held) for id, held in found.items()}, armed, kept)


class Ranking:
    """What was learned from cases whose causes are known."""

    def __init__(self, cases: Iterable[Case], explains: dict[str, tuple[str, ...]]) -> None:
        self.explains = explains
        # of all cases, and of those of one cause: how often a probe was armed, a finding made, its evidence seen
        self.armed: dict[str, Counter[str]] = {cause: Counter() for cause in ("", *explains)}
        self.found: dict[str, Counter[str]] = {cause: Counter() for cause in ("", *explains)}
        self.words: dict[str, Counter[tuple[str, str]]] = {cause: Counter() for cause in ("", *explains)}
        self.known: dict[str, set[str]] = {}  # finding: every piece of evidence that was ever seen with it
        right, wrong = [1.0] * 4, [1.0] * 4  # rules by step, of true causes and of others
        for case in cases:
            self._count("", case, 1.0)
            for cause in case.causes:
                self._count(cause, case, 1 / len(case.causes))
            for cause in explains:
                (right if cause in case.causes else wrong)[case.fits.get(cause, 0)] += 1
        self.trust = [
            math.log(right[step] / sum(right)) - math.log(wrong[step] / sum(wrong)) for step in range(len(right))
        ]

    def _count(self, cause: str, case: Case, weight: float) -> None:
        for probe in case.armed:
            self.armed[cause][probe] += weight  # type: ignore[assignment]
        for id, held in case.found.items():
            self.found[cause][id] += weight  # type: ignore[assignment]
            self.known.setdefault(id, set()).update(held)
            for word in held:
                self.words[cause][id, word] += weight  # type: ignore[assignment]

    def chance(self, cause: str, id: str) -> float:
        """Of this finding, if this is the cause and the probe is armed."""
        probe = id.partition(".")[0]
        usual = (self.found[""][id] + 0.5) / (self.armed[""][probe] + 2)
        expected = max(usual, EXPECTED) if {id, probe} & set(self.explains[cause]) else usual / 2
        chance = (self.found[cause][id] + STRENGTH * expected) / (self.armed[cause][probe] + STRENGTH)
        return min(max(chance, 0.01), 0.99)

    def evidence_chance(self, cause: str, id: str, word: str) -> float:
        """Of this piece of evidence, if this is the cause and the finding is there."""
        usual = (self.words[""][id, word] + 0.5) / (self.found[""][id] + 1)
        seen = self.words[cause][id, word] + EVIDENCE_STRENGTH * usual
        return min(max(seen / (self.found[cause][id] + EVIDENCE_STRENGTH), 0.02), 0.98)

    def score(self, cause: str, case: Case) -> float:
        """The logarithm of how likely the case is under this cause, up to what is the same for all."""
        total = 0.0
        for id in self.known:
            if id.partition(".")[0] not in case.armed:
                continue
            total += weigh(self.chance(cause, id), id in case.found)
            if id in case.found:
                held = case.found[id]
                total += (
                    sum(weigh(self.evidence_chance(cause, id, word), word in held) for word in self.known[id]) * WEIGHT
                )
        return WEIGHT * total + self.trust[case.fits.get(cause, 0)]

    def rank(self, case: Case) -> list[tuple[str, float]]:
        """Causes that explain anything that was found, likeliest first, each with its probability among them."""
        able = [cause for cause in self.explains if case.fits.get(cause) or self._explains(cause, case)]
        scores = {cause: self.score(cause, case) for cause in able}
        highest = max(scores.values(), default=0.0)
        weights = {cause: math.exp(score - highest) for cause, score in scores.items()}
        total = sum(weights.values())
        # what explains an error comes before what explains a warning: healthy models get warnings, too
        return sorted(
            ((cause, weight / total) for cause, weight in weights.items()),
            key=lambda pair: (not self._explains(pair[0], case), -pair[1]),
        )

    def _explains(self, cause: str, case: Case) -> bool:
        """Does it explain an error that does not follow from every bug, if there is one?"""
        errors = {id for id, held in case.found.items() if ERROR in held} - FOLLOWING
        told = errors or set(case.found)
        return any({id, id.partition(".")[0]} & set(self.explains[cause]) for id in told)


def weigh(chance: float, happened: bool) -> float:
    return math.log(chance if happened else 1 - chance)


def stored() -> list[Case]:
    """The cases that come with the package."""
    text = resources.files("clearhead.doctor").joinpath("evidence.jsonl").read_text(encoding="utf-8")
    return [from_json(line) for line in text.splitlines()]


def named(cases: Sequence[Case], left_out: Callable[[Case, Case], bool], explains: dict[str, tuple[str, ...]]) -> int:
    """How many of the cases have a true cause among the first three, learned without those left out for each."""

    @cache
    def without(kept: tuple[int, ...]) -> Ranking:
        return Ranking([cases[i] for i in kept], explains)

    count = 0
    for case in cases:
        kept = tuple(i for i, other in enumerate(cases) if not left_out(other, case))
        first = [cause for cause, _ in without(kept).rank(case)[:3]]
        count += bool(set(first) & set(case.causes))
    return count
