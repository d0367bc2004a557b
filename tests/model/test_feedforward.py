"""The feed-forward network: its bends against torch's, both twins, and that each token is worked on alone."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.feedforward import FUSED, PLAIN, FeedForward
from tests.model.helpers import all_close, close, config, gradients, normal, randomise

THEIRS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
}


@pytest.mark.parametrize("name", PLAIN)
def test_activations_are_torch_s(name: str) -> None:
    x = (normal(200) * 4).requires_grad_()
    for function in (PLAIN[name], FUSED[name]):
        close(function(x), THEIRS[name](x))
        mine, theirs = (torch.autograd.grad(f(x).pow(2).sum(), x)[0] for f in (function, THEIRS[name]))
        close(mine, theirs)
    assert torch.autograd.gradcheck(PLAIN[name], normal(30, grad=True))


def test_the_two_forms_of_gelu_differ() -> None:
    x = torch.linspace(-4, 4, 1001, dtype=torch.float64)
    assert 1e-4 < (PLAIN["gelu"](x) - PLAIN["gelu_tanh"](x)).abs().max() < 5e-4


@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", PLAIN)
def test_is_the_formula(activation: str, bias: bool, kernels: str) -> None:
    module = randomise(FeedForward(config(activation=activation, bias=bias, d_ff=17, kernels=kernels))).double()
    x, bend = normal(2, 5, 24), THEIRS[activation]
    inner = F.linear(x, module.inner.weight, module.inner.bias)
    if module.gate is not None:  # Shazeer, 2020: (Swish(x W) ⊙ x V) W₂
        hidden = bend(F.linear(x, module.gate.weight, module.gate.bias)) * inner
    else:
        hidden = bend(inner)
    close(module(x), F.linear(hidden, module.outer.weight, module.outer.bias))
    assert (module.gate is not None) == (activation == "swiglu")
    assert (module.inner.bias is not None) == bias


@pytest.mark.parametrize("activation", PLAIN)
def test_twins_agree(activation: str) -> None:
    results = []
    for kernels in ("plain", "fused"):
        module = randomise(FeedForward(config(activation=activation, kernels=kernels))).double()
        module(normal(3, 5, 24)).pow(2).sum().backward()
        results.append(gradients(module))
    all_close(results[1], results[0])


def test_each_token_is_worked_on_alone() -> None:
    module, x = randomise(FeedForward(config())).double(), normal(2, 5, 24)
    close(module(x)[:, 2], module(x[:, 2]))
