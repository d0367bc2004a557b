"""No false alarms: healthy models of other people, and changes that only look like bugs."""

from dataclasses import replace

import pytest
import torch

from clearhead.doctor.examine import check
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.mutants import Mutant, load
from clearhead.doctor.mutants.benign import BENIGN
from tests.doctor.zoo import ZOO

# the rest of the zoo, and all probes, in the long test
DAILY = ("torch.nn.Transformer", "GPT-2", "Llama", "Mistral, sliding window", "BERT", "T5", "x-transformers, rotary")


@pytest.mark.parametrize("name", DAILY)
def test_healthy_models_of_others_have_no_errors(name: str) -> None:
    report = check(ZOO[name](), quick=True)
    assert report.errors == ()
    assert len(report.passed) >= 8


@pytest.mark.long
@pytest.mark.parametrize("name", list(ZOO))
def test_the_whole_zoo_has_no_errors(name: str) -> None:
    assert check(ZOO[name]()).errors == ()


@pytest.mark.parametrize("row", BENIGN, ids=lambda row: row.id)
def test_changes_that_are_no_bugs_give_no_finding(row: Mutant) -> None:
    spec = replace(describe(row.host, row.variant, load(row)), reference=None)
    assert check(spec, quick=True).findings == ()


@pytest.mark.parametrize(
    ("host", "variant", "dtype"),
    [
        ("decoder", "rotary", torch.float32),
        ("decoder", "rotary", torch.bfloat16),
        ("encoder", "plain", torch.bfloat16),
        ("seq2seq", "plain", torch.float32),
    ],
)
def test_healthy_hosts_in_other_precisions(host: str, variant: str, dtype: torch.dtype) -> None:
    report = check(replace(describe(host, variant), dtype=dtype), quick=True)
    assert report.findings == ()


@pytest.mark.parametrize(("host", "variant"), [("capped", "plain"), ("unpadded", "mlm"), ("unpadded", "causal")])
def test_what_was_a_false_alarm_is_none(host: str, variant: str) -> None:
    """Layers that slide in turns, a sum that is clipped, a path that drops in pieces, scores that a mask hides."""
    report = check(describe(host, variant), only=["reach", "position", "dropout", "update"])
    assert report.findings == ()
    assert {"reach", "position", "dropout", "update"} <= set(report.passed)
