"""The guide's example is run as it is printed: broken first, then repaired as the text says, never described."""

import re
from pathlib import Path

import pytest

from clearhead import doctor
from clearhead.doctor.infer.target import describe_target

GUIDE = Path(__file__).parents[2] / "docs" / "doctor.md"
PROBES = ["mode", "future", "scale", "initial"]
REPAIRS = [
    (", 0.1)\n", ", 0.1, self.training)\n"),
    ("torch.tril(torch.ones(S, S), diagonal=1)", "torch.tril(torch.ones(S, S))"),
    ("math.sqrt(D)", "math.sqrt(D // self.n_head)"),
]


def example(repairs: int, folder: Path) -> Path:
    code = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert code is not None
    text = code.group(1)
    for wrong, right in REPAIRS[:repairs]:
        assert text.count(wrong) == 1
        text = text.replace(wrong, right)
    path = folder / f"small_gpt_{repairs}.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("repairs", "found", "first"),
    [
        (0, ["mode.random", "future.visible", "scale.grows"], "mask-diagonal"),
        (1, ["future.visible", "scale.grows"], "mask-diagonal"),
        (2, ["scale.grows"], "scale-missing"),
        (3, [], None),
    ],
)
def test_the_example_of_the_guide(repairs: int, found: list[str], first: str | None, tmp_path: Path) -> None:
    inferred = describe_target(str(example(repairs, tmp_path)))
    assert type(inferred.spec).__name__ == "CausalLM"
    report = doctor.check(inferred.spec, only=PROBES)
    assert [finding.id for finding in report.findings] == found
    assert (report.causes[0].id if report.causes else None) == first
    if repairs == 0:
        assert "F.dropout(self.down" in report.findings[0].where[0]


def test_every_probe_that_the_guide_promises_a_line_for_is_armed_by_it() -> None:
    """The fields of the table are fields of a description."""
    table = GUIDE.read_text().split("## What each further line buys")[1].split("\n## ")[0]
    fields = set(re.findall(r"`(\w+)=", table))
    known = {name for kind in (doctor.CausalLM, doctor.EncoderDecoder) for name in kind.__dataclass_fields__}
    assert len(fields) > 15
    assert fields <= known
