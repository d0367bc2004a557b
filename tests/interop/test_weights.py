"""The loader of tables: every name is accounted for, every layout undone."""

import pytest
import torch

import clearhead
from clearhead.interop.weights import FLAT, TURNED, load_weights, row, to_ours, under
from tests.model.helpers import close, config, normal

LAYER = (row("fused.{p}", "query.{p}", "key.{p}", layout=TURNED), row("buffer"), row("line", "line", layout=FLAT))


def test_layouts() -> None:
    theirs = {"l.7.fused.weight": normal(3, 4), "l.7.fused.bias": normal(4), "l.7.line": normal(1, 5)}
    ours = to_ours({**theirs, "l.7.buffer": normal(2)}, under("l.{n}.", "layers.{n}.", LAYER))
    assert sorted(ours) == [
        "layers.7.key.bias",
        "layers.7.key.weight",
        "layers.7.line",
        "layers.7.query.bias",
        "layers.7.query.weight",
    ]
    close(ours["layers.7.query.weight"], theirs["l.7.fused.weight"][:, :2].t())
    close(ours["layers.7.key.weight"], theirs["l.7.fused.weight"][:, 2:].t())
    close(ours["layers.7.key.bias"], theirs["l.7.fused.bias"][2:])
    close(ours["layers.7.line"], theirs["l.7.line"][0])


def test_names_match_whole() -> None:
    for name in ("fused.weights", "xfused.weight", "fusedxweight", "fused"):
        with pytest.raises(clearhead.InputError, match=rf"no place for the tensor '{name}' of shape \(2, 4\)"):
            to_ours({name: normal(2, 4)}, LAYER)


def test_stacks_that_do_not_divide() -> None:
    with pytest.raises(
        clearhead.InputError, match=r"fused\.bias stacks 2 tensors, but its shape \(3,\) does not divide"
    ):
        to_ours({"fused.bias": normal(3)}, LAYER)


def test_copies_must_agree() -> None:
    table = (row("shared", "embedding.weight"), row("again", "embedding.weight"))
    same = normal(2, 3)
    assert list(to_ours({"shared": same, "again": same.clone()}, table)) == ["embedding.weight"]
    with pytest.raises(clearhead.InputError, match=r"again is a second embedding\.weight, but with other values"):
        to_ours({"shared": same, "again": same + 1}, table)


def test_refuses_a_set_that_does_not_fit() -> None:
    model = clearhead.build(config())
    weights = {name: parameter.detach() * 2 for name, parameter in model.named_parameters()}
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    missing = dict(weights)
    del missing["embedding.weight"]
    for changed, message in (
        (missing, "missing tensors: embedding.weight"),
        ({**weights, "extra": normal(2)}, "unexpected tensors: extra"),
        (
            {**weights, "embedding.weight": weights["embedding.weight"].t()},
            r"embedding.weight: found shape \(24, 29\), wanted \(29, 24\)",
        ),
        ({**weights, "output.weight": weights["embedding.weight"] + 1}, "output.weight differs from embedding.weight"),
    ):
        with pytest.raises(clearhead.InputError, match=message):
            load_weights(model, changed)
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, before[name])  # refused whole: nothing was overwritten
    load_weights(model, {**weights, "output.weight": weights["embedding.weight"].clone()})
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name])
