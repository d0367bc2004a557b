"""The verdict in a terminal, in JSON and in a notebook; kinds of failure are told apart."""

import json
import math
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from torch import Tensor, nn

from clearhead import learn
from clearhead.errors import InputError
from clearhead.learn.notebooks import write_notebooks
from clearhead.learn.verdict import Verdict


def scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1) @ v


def unscaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1) @ v


def test_the_four_lines() -> None:
    verdict = learn.check("attention", unscaled)
    words = [word for word, _ in verdict.rows()]
    assert words[:4] == ["called", "got", "wanted", "likely"]
    assert "√d" in str(verdict)
    assert verdict.line is not None
    assert "softmax" in verdict.line.text
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict
    assert "<table>" in verdict._repr_html_()
    assert "&lt;" in learn.check("attention", lambda q, k, v: "<b>")._repr_html_()


def test_the_smallest_input_is_shown() -> None:
    """Two keys and two features are the least that shows a missing scale."""
    assert "q (1, 1, 1, 2)" in learn.check("attention", unscaled).called


def coupled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled(q, k, v.mean(0, keepdim=True).expand_as(v))


def square(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled(q, k, v) if q.size(2) == k.size(2) else scaled(q, k, v.flip(2))


def harmful(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.no_grad():
        q /= math.sqrt(q.size(-1))
    return (q @ k.mT).softmax(-1) @ v


def cut_off(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled(q.detach(), k, v)


def unstable(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    powers = (q @ k.mT / math.sqrt(q.size(-1))).exp()
    return powers / powers.sum(-1, keepdim=True) @ v


class Remembering:
    calls = 0

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.calls += 1
        return scaled(q, k, v) * (1 + (self.calls - 1) % 2)


def test_kinds_of_failure_are_told_apart() -> None:
    kinds = {
        lambda q, k, v: scaled(q, k, v)[0]: "shapes",
        unscaled: "values",
        cut_off: "gradients",
        unstable: "unstable",
        harmful: "arguments",
        lambda q, k, v: q @ k: "runs",
    }
    for wrong, kind in kinds.items():
        verdict = learn.check("attention", wrong)
        assert verdict.kind == kind, str(verdict)
    assert learn.check("attention", Remembering()).kind == "again"
    assert learn.check("attention", coupled).only == "B = 1"
    assert learn.check("attention", square).only == "S = T"


def test_right_only_without_padding() -> None:
    verdict = learn.check("masks", padding_mask=lambda real: torch.ones_like(real)[:, None, None])
    assert verdict.only == "nothing is padded"


def test_what_is_given_is_named() -> None:
    assert learn.check("attention", scaled).passed
    assert learn.check("attention", attention=scaled).passed
    for arguments, named, said in (
        (("atention", scaled), {}, "attention"),
        (("attention",), {}, "found none"),
        (("attention", 3), {}, "int"),
        (("masks",), {"mask": scaled}, "mask"),
    ):
        with pytest.raises(InputError, match=said):
            learn.check(*arguments, **named)  # type: ignore[arg-type]


def test_notebooks_are_valid_and_hold_the_course(tmp_path: Path) -> None:
    written = write_notebooks(tmp_path)
    assert len(written) == len(learn.course())
    for path in written:
        nbformat.validate(nbformat.read(path, as_version=4))
        cells = json.loads(path.read_text())["cells"]
        compile("".join(cells[2]["source"]), path.name, "exec")
        assert not any("import ex" in line or "from ex" in line for line in cells[2]["source"])
    whole = [path.read_text() for path in written]
    written[-1].unlink()
    write_notebooks(tmp_path)  # goes on where it was interrupted
    assert [path.read_text() for path in written] == whole
    written[1].write_text(whole[1] + " ")  # somebody's own
    with pytest.raises(InputError, match=f"{written[1].name} is already there"):
        write_notebooks(tmp_path)
    assert len(write_notebooks(tmp_path, force=True)) == len(written)


def test_a_failure_is_shrunk_to_the_same_failure() -> None:
    """At size 1 this product would fit, and another line would fail."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return nn.Softmax(q @ k) @ v  # type: ignore[arg-type, operator]

    verdict = learn.check("attention", attention)
    assert verdict.kind == "runs"
    assert "Expected size" in verdict.got
    assert verdict.likely[0].id == "keys-not-transposed"


def test_errors_are_told_with_their_cause() -> None:
    def uncalled(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return nn.Softmax(q @ k.mT) @ v  # type: ignore[arg-type, operator]

    def single(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q.float() @ k.mT).softmax(-1) @ v

    def in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.no_grad():
            q /= q.size(-1) ** 0.5
        return (q @ k.mT).softmax(-1) @ v

    for part, cause in ((uncalled, "module-not-called"), (single, "precision-mixed"), (in_place, "arguments-changed")):
        assert learn.check("attention", attention=part).likely[0].id == cause
