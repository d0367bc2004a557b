"""Muon: the singular values it leaves, and its steps beside torch.optim's, which takes its products in bfloat16."""

import pytest
import torch

from clearhead.training import muon

SHAPES = [(24, 24), (24, 60), (60, 24)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("native", [False, True])
def test_keeps_the_directions_and_evens_out_their_sizes(
    shape: tuple[int, int], native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(muon, "pick_precision", lambda *_: "bfloat16" if native else "float32")
    torch.manual_seed(0)
    sizes = torch.logspace(0, -2, min(shape))  # a hundredfold between the largest and the smallest
    left, _, right = torch.linalg.svd(torch.randn(2, *shape), full_matrices=False)
    step = muon.orthogonal(7 * (left * sizes) @ right)
    assert step.dtype == torch.float32
    seen = left.mT @ step @ right.mT  # (2, n, n): diagonal, if no direction was turned
    values = seen.diagonal(dim1=-2, dim2=-1)
    assert values.min() > 0.5
    assert values.max() < 1.3
    torch.testing.assert_close(seen, torch.diag_embed(values), rtol=0, atol=0.05 if native else 1e-4)


def test_steps_are_those_of_torch_in_higher_precision() -> None:
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in [*SHAPES, *SHAPES]]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    before = [parameter.detach().clone() for parameter in ours]
    optimizers = muon.Muon(ours, 0.1), torch.optim.Muon(theirs, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for n in range(4):
        for one, two in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            two.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.01 * (n + 1)
            optimizer.step()
    for one, two, start in zip(ours, theirs, before, strict=True):
        gap = (one - two).norm() / (two - start).norm()
        assert gap < 0.02, f"{tuple(one.shape)}: {gap:.3f} of the way apart"


def test_nothing_decays_or_moves_unless_told() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = muon.Muon([weight])
    weight.grad = torch.eye(4)
    optimizer.step()
    assert torch.equal(weight, torch.ones(4, 4))  # a rate of zero
    optimizer.param_groups[0]["lr"] = 0.1
    weight.grad = torch.zeros(4, 4)
    optimizer.state.clear()
    optimizer.step()
    assert torch.equal(weight, torch.ones(4, 4))


def test_a_matrix_without_a_gradient_stays() -> None:
    moved, still = (torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    optimizer = muon.Muon([moved, still], 0.1)
    optimizer.param_groups[0]["lr"] = 0.1
    moved.grad = torch.eye(4)
    optimizer.step()
    assert torch.equal(still, torch.ones(4, 4))
    assert not torch.equal(moved, torch.ones(4, 4))
