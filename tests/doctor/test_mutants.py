"""The planted bugs: every one of the catalogue, each really a change, and most of them found and named."""

import re

import pytest

from clearhead.doctor.causes import known
from clearhead.doctor.examine import check
from clearhead.doctor.hosts.describe import VARIANTS, describe
from clearhead.doctor.mutants import Mutant, broken_source, load, source, table
from clearhead.errors import InputError

CATALOGUE = {
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 17, 19, 21, 22, 23, 26, 27, 28, 29, 31, 32, 33, 34, 36, 37, 39, 40,
    43, 44, 46, 47, 48, 51, 53, 54, 55, 56, 58, 60, 61, 62, 63, 64, 65, 67, 68, 71, 72, 73, 75, 76, 79, 80, 81, 82, 83,
}  # fmt: skip


def test_every_bug_of_the_catalogue_is_planted() -> None:
    planted = {int(match.group(1)) for id in table() if (match := re.fullmatch(r"(\d+)[b-z]?", id))}
    assert planted == CATALOGUE
    assert len(CATALOGUE) == 60


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
        hit = any(f.severity == "error" or f.id not in healthy[key] for f in report.findings)
        found += hit
        named += hit and bool(set(mutant.causes) & {cause.id for cause in report.causes[:3]})
    assert found >= 0.95 * len(table())
    assert named >= 0.85 * len(table())
