"""The planted bugs: those of the catalogue, each really a change, and most of them found and named."""

import re

import pytest

from clearhead.doctor.causes import known
from clearhead.doctor.examine import check
from clearhead.doctor.hosts.describe import VARIANTS, describe
from clearhead.doctor.mutants import Mutant, broken_source, load, source, table
from clearhead.errors import InputError


def test_sixty_bugs_of_the_catalogue_are_planted() -> None:
    """As docs/doctor.md says; a number is the catalogue's, a letter after it another place for the same bug."""
    planted = {match.group(1) for id in table() if (match := re.fullmatch(r"(\d+)[b-z]?", id))}
    assert len(planted) == 60


def test_every_row_changes_its_host() -> None:
    for mutant in table().values():
        assert mutant.variant in VARIANTS[mutant.host]
        assert broken_source(mutant) != source(mutant.host)
        compile(broken_source(mutant), mutant.id, "exec")


def test_a_row_that_no_longer_fits_is_refused() -> None:
    stale = Mutant("0", "stale", "decoder", "rotary", "this line is gone", "x", ())
    with pytest.raises(InputError, match="occurs 0 times"):
        load(stale)


def test_causes_that_mutants_name_exist() -> None:
    names = {cause.id for cause, _, _ in known()}
    assert len(names) == len(known())
    for mutant in table().values():
        assert set(mutant.causes) <= names, mutant.id


# one of each kind; `make bench-doctor` and the long test below ask for all of them
@pytest.mark.parametrize("id", ["1", "13", "22", "40", "46", "x06", "x31", "27"])
def test_cause_is_among_the_first_three(id: str) -> None:
    mutant = table()[id]
    report = check(describe(mutant.host, mutant.variant, load(mutant)), quick=True)
    assert set(mutant.causes) & {cause.id for cause in report.causes[:3]}, [cause.id for cause in report.causes[:3]]


@pytest.mark.long
def test_found_and_named_rates() -> None:
    healthy: dict[tuple[str, str], set[str]] = {}
    found = named = 0
    for mutant in table().values():
        key = (mutant.host, mutant.variant)
        if key not in healthy:
            healthy[key] = {finding.id for finding in check(describe(*key)).findings}
        report = check(describe(*key, load(mutant)))
        hit = any(
            f.severity == "error" or (f.severity == "warning" and f.id not in healthy[key]) for f in report.findings
        )
        found += hit
        named += hit and bool(set(mutant.causes) & {cause.id for cause in report.causes[:3]})
    assert found >= 0.95 * len(table())
    assert named >= 0.85 * len(table())
