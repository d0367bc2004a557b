"""Each probe speaks up for a bug of its own and keeps quiet about the healthy host."""

import pytest

from clearhead.doctor.examine import check
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.mutants import load, table
from clearhead.doctor.probes import PROBES
from tests.doctor.test_lasting import MUST_FIND as LASTING

# probe: the bugs it must find by itself
MUST_FIND = {
    "future": ("1", "13", "15", "16", "17", "19", "22", "22b", "23", "21"),
    "prefix": ("s3", "x19"),
    "reach": ("4", "32b", "33", "x33", "x35", "x41"),
    "batch": ("e2", "e5", "39", "36", "x16", "x42"),
    "padding": ("26", "27", "27b", "47", "e26b", "x12", "x31"),
    "finite": ("28", "29", "83", "x14"),
    "mode": ("64", "65", "x05", "x11"),
    "paths": ("22b",),
    "cache": ("31", "32", "46", "67", "68", "x10", "x44", "x43"),
    "generate": ("x08", "x48"),
    "position": ("37", "37b", "40", "48", "x02", "x03", "x09", "x34"),
    "attention": ("5", "5b", "6", "e6b"),
    "scale": ("51", "51b", "e51", "s51"),
    "embedding": ("53",),
    "parameters": ("12", "55", "56", "58", "60", "60b", "62", "62b", "x06", "x07", "x17", "x36"),
    "optimizer": ("63", "82", "x70"),
    "initial": ("54", "s54"),
    "loss": ("11", "71", "72", "75", "76", "x61", "x62", "x63", "x68", "x69", "x71", "x72", "t11", "fn38", "f48"),
    "invariance": ("73",),
    "update": ("79", "80", "x64", "x65", "x66"),
    "schedule": ("81", "x67"),
    "packed": ("34",),
    "parity": ("8", "10", "61"),
    "length": ("43", "44", "x20"),
}
CASES = [(probe, id) for probe, ids in MUST_FIND.items() for id in ids]
# two bugs of each probe in every run, all of them in the long one
SOME = {(probe, id) for probe, ids in MUST_FIND.items() for id in ids[:2]}
MARKED = [pytest.param(*case, marks=[] if case in SOME else [pytest.mark.long]) for case in CASES]
HOSTS = sorted({(probe, table()[id].host, table()[id].variant) for probe, id in CASES})


@pytest.mark.parametrize(("probe", "id"), MARKED)
def test_probe_finds_its_bug(probe: str, id: str) -> None:
    mutant = table()[id]
    report = check(describe(mutant.host, mutant.variant, load(mutant)), only=[probe])
    assert report.findings, f"{probe} misses bug {id}: {mutant.title}"


@pytest.mark.parametrize(("probe", "host", "variant"), HOSTS)
def test_probe_is_quiet_about_the_healthy_host(probe: str, host: str, variant: str) -> None:
    report = check(describe(host, variant), only=[probe])
    assert report.findings == ()


def test_random_tokens_are_beaten_only_by_a_model_that_sees_them() -> None:
    mutant = table()["23"]
    assert check(describe("decoder", "rotary"), only=["floor"]).healthy
    found = check(describe("decoder", "rotary", load(mutant)), only=["floor"])
    assert [finding.id for finding in found.findings] == ["floor.beaten"]


def test_every_probe_is_tried() -> None:
    assert set(MUST_FIND) | set(LASTING) | {"floor", "precision"} == set(PROBES)


def test_precision_warns_when_positions_are_kept_in_16_bits() -> None:
    from dataclasses import replace

    from clearhead.doctor.mutants import module_from, source

    healthy = "angles = positions.float().unsqueeze(-1) * frequencies"
    text = source("decoder")
    assert text.count(healthy) == 1
    # positions in whatever precision the weights have: harmless in float32, wrong in bfloat16
    text = text.replace(healthy, "angles = positions.to(DTYPE).unsqueeze(-1) * frequencies.to(DTYPE)").replace(
        "offset = cache.length", "globals().update(DTYPE=self.head.weight.dtype)\n        offset = cache.length"
    )
    broken = module_from("DTYPE = None\n" + text, "clearhead.doctor.hosts.decoder_in_16_bits", "<16 bits>")
    spec = replace(describe("decoder", "rotary", broken), reference=None)
    assert [finding.id for finding in check(spec, only=["precision"]).findings] == ["precision.grows"]
    assert not check(describe("decoder", "rotary"), only=["precision"]).findings
