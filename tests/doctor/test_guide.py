"""The guide's example is run as it is printed: broken first, then repaired as the text says."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from clearhead import doctor
from clearhead.doctor.mutants import module_from

GUIDE = Path(__file__).parents[2] / "docs" / "doctor.md"
PROBES = ["mode", "future", "scale", "initial"]
REPAIRS = [
    (", 0.1)\n", ", 0.1, self.training)\n"),
    ("torch.tril(torch.ones(S, S), diagonal=1)", "torch.tril(torch.ones(S, S))"),
    ("math.sqrt(D)", "math.sqrt(D // self.n_head)"),
]


def example(repairs: int) -> ModuleType:
    code = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert code is not None
    text = code.group(1)
    for wrong, right in REPAIRS[:repairs]:
        assert text.count(wrong) == 1
        text = text.replace(wrong, right)
    return module_from(text, f"guide_example_{repairs}", f"small_gpt_{repairs}.py")


@pytest.mark.parametrize(
    ("repairs", "found", "first"),
    [
        (0, ["mode.random", "scale.grows"], "dropout-in-eval"),
        (1, ["future.visible", "scale.grows"], "scale-missing"),
        (2, ["scale.grows"], "scale-missing"),
        (3, [], None),
    ],
)
def test_the_example_of_the_guide(repairs: int, found: list[str], first: str | None) -> None:
    report = doctor.check(example(repairs).spec, only=PROBES)
    assert [finding.id for finding in report.findings] == found
    assert (report.causes[0].id if report.causes else None) == first
    if repairs == 0:
        assert "F.dropout(self.down" in report.findings[0].where[0]
