"""Norms: their definition, their fused twins, and 16-bit inputs whose squares do not fit in 16 bits."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.model.norm import LayerNorm, RMSNorm, layer_norm, rms_norm
from tests.model.helpers import close, config, normal, randomise


def both(kind: str, width: int, epsilon: float = 1e-5) -> list[LayerNorm | RMSNorm]:
    """The plain and the fused twin with the same weights, in float64."""
    choice: dict[str, Any] = {
        "d_model": width,
        "heads": 1,
        "positions": "none",
        "norm": {"kind": kind, "epsilon": epsilon},
    }
    cls = LayerNorm if kind == "layer" else RMSNorm
    return [randomise(cls(config(kernels=kernels, **choice))).double() for kernels in ("plain", "fused")]


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("width", [1, 2, 31, 512])
@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 0.5])
def test_twins_agree(kind: str, width: int, epsilon: float) -> None:
    x = (normal(3, 5, width) * 3 + 1).requires_grad_()
    results = []
    for norm in both(kind, width, epsilon):
        out = norm(x)
        inputs = [x, *norm.parameters()]
        results.append([out, *torch.autograd.grad((out * normal(*out.shape, seed=1)).sum(), inputs)])
    # one feature is its own mean: its variance is zero, and only epsilon keeps the gradient from being 0/0
    rounding = 1e-11 if width > 1 or kind == "rms" else 1e-6
    for mine, truth in zip(results[1], results[0], strict=True):
        close(mine, truth, rounding)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_rms_norm_is_torch_s(epsilon: float) -> None:
    theirs = nn.RMSNorm(31, eps=epsilon, dtype=torch.float64)
    nn.init.normal_(theirs.weight)
    x = normal(4, 31)
    close(rms_norm(x, theirs.weight, epsilon), theirs(x))


def test_what_they_promise() -> None:
    x, one = normal(4, 6, 64) * 7 + 3, torch.ones(64, dtype=torch.float64)
    out = layer_norm(x, one, None, 1e-12)
    close(out.mean(-1), torch.zeros(4, 6, dtype=torch.float64))
    close(out.var(-1, unbiased=False), torch.ones(4, 6, dtype=torch.float64))
    out = rms_norm(x, one, 1e-12)
    close(out.pow(2).mean(-1), torch.ones(4, 6, dtype=torch.float64))
    close(out / out.norm(dim=-1, keepdim=True), x / x.norm(dim=-1, keepdim=True))  # the direction stays
    assert torch.equal(layer_norm(torch.full((1, 64), 5.0), torch.ones(64), None, 1e-5), torch.zeros(1, 64))


def test_gradcheck() -> None:
    x, weight, bias = normal(2, 3, 5, grad=True), normal(5, seed=1, grad=True), normal(5, seed=2, grad=True)
    assert torch.autograd.gradcheck(lambda x, w, b: layer_norm(x, w, b, 1e-5), (x, weight, bias))
    assert torch.autograd.gradcheck(lambda x, w: rms_norm(x, w, 1e-5), (x, weight))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("fused", [False, True])
def test_sixteen_bits(kind: str, dtype: torch.dtype, fused: bool) -> None:
    """Values near 2,000 have squares past float16's 65,504. Within two roundings of the output (2⁻¹⁰ or 2⁻⁷)."""
    norm = both(kind, 512)[fused]
    x: Tensor = (normal(3, 512) * 1000 + 1000).to(dtype)
    found, wanted = norm.to(dtype)(x), norm.double()(x.double())
    assert found.dtype == dtype
    close(found.double(), wanted, 2 * torch.finfo(dtype).eps)
