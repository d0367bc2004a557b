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
from clearhead.transformer import (
    Encoder,
    EncoderLayer,
    LayerNorm,
    MultiHeadAttention,
    Residual,
    masked_attention,
    merge_heads,
    split_heads,
)


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


class ByTorch(LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


class Halved(ByTorch):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


def test_torch_s_own_norm_is_right_and_remarked() -> None:
    verdict = learn.check("layers", LayerNorm=ByTorch)
    assert verdict.passed
    assert ["torch's own" in remark for remark in verdict.remarks] == [True]
    assert not learn.check("layers", LayerNorm=LayerNorm).remarks
    assert "torch's own" not in str(learn.check("layers", LayerNorm=Halved))


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


class TooLate(MultiHeadAttention):
    """The heads go through `out` before they are merged: the same error as from projecting after splitting."""

    def forward(self, x: Tensor, memory: Tensor, may_attend: Tensor | None = None) -> Tensor:
        rows = ((self.query, x), (self.key, memory), (self.value, memory))
        q, k, v = (split_heads(linear(y), self.heads) for linear, y in rows)
        return merge_heads(self.out(masked_attention(q, k, v, may_attend)))


def test_of_mistakes_that_fail_alike_the_line_tells() -> None:
    verdict = learn.check("multihead", MultiHeadAttention=TooLate)
    assert [likely.id for likely in verdict.likely[:2]] == ["merged-too-late", "split-too-early"]
    assert verdict.line is not None
    assert "self.out" in verdict.line.text


def test_a_line_that_is_a_guess_says_so() -> None:
    def two_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT
        return scores.softmax(-1) @ v

    for wrong, word in ((unscaled, "line"), (two_products, "near")):
        verdict = learn.check("attention", attention=wrong)
        assert verdict.line is not None
        assert (f"{word} {verdict.line.number}", verdict.line.text.strip()) in verdict.rows()


def test_a_line_is_one_that_the_learner_wrote() -> None:
    def loss(
        logits: Tensor,
        labels: Tensor,
        pad: int,  # labels of this value do not count
        smoothing: float = 0.0,
    ) -> Tensor:
        """The mean over what is no pad."""
        flat = logits.flatten(0, 1)
        return nn.functional.cross_entropy(flat, labels.flatten(), reduction="mean", label_smoothing=smoothing)

    verdict = learn.check("loss", loss=loss)
    assert verdict.likely[0].id == "padding-counted"
    assert verdict.line is not None
    assert "cross_entropy" in verdict.line.text


def test_the_picture_of_a_deep_stack_has_a_bar_for_each_layer() -> None:
    picture = learn.check("encoder", Residual=Residual, EncoderLayer=EncoderLayer, Encoder=Encoder).picture
    assert all("█" in line for line in picture.splitlines())
    assert len(picture.splitlines()) == 8


def test_a_part_that_fails_only_where_its_picture_is_drawn_is_told() -> None:
    def embed(tokens: Tensor, table: Tensor) -> Tensor:
        if table.shape == (8, 16):  # the picture's
            raise KeyError("no such row")
        return table[tokens] * math.sqrt(table.size(1))

    verdict = learn.check("embedding", embed)
    assert (verdict.status, verdict.kind, verdict.message) == ("wrong", "runs", "embed fails")
    assert "KeyError: 'no such row'" in verdict.got
    assert verdict.line is not None
    assert "raise KeyError" in verdict.line.text
