"""Sixteen bits: nothing overflows, and what is lost is a rounding or two, at length 2,048 as at the start.

ε is the spacing of the type at 1: 2⁻¹⁰ for float16, 2⁻⁷ for bfloat16. Bounds are stated in it, against float64.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.model.attention import attention, fused_attention
from clearhead.model.positions import Rotary, rotate
from tests.model.cases import POSITIONS
from tests.model.helpers import config, model, normal, tokens

HALVES = [torch.float16, torch.bfloat16]


def rms(x: Tensor) -> float:
    return x.double().pow(2).mean().sqrt().item()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize("length", [16, 64, 2048])
def test_attention_is_within_two_roundings(length: int, function: Any, dtype: torch.dtype) -> None:
    """Largest error below 2ε of the largest output."""
    q, k, v = (normal(1, 2, length, 64, seed=seed).to(dtype) for seed in range(3))
    wanted, _ = attention(q.double(), k.double(), v.double(), causal=True)
    found, _ = function(q, k, v, causal=True)
    assert found.dtype == dtype
    assert (found.double() - wanted).abs().max() < 2 * torch.finfo(dtype).eps * wanted.abs().max()


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize("length", [16, 130])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_scores_up_to_ten_thousand(biased: bool, masked: bool, length: int, function: Any, dtype: torch.dtype) -> None:
    """Finite in value and gradient, and the weight goes where it should. Before the 1/√d, q·k is past float16's end."""
    q, k, v = (normal(1, 2, length, 64, seed=seed) for seed in range(3))
    stretch = (1e4 / (q @ k.transpose(2, 3) / 8).abs().max()).sqrt()
    q, k, v = ((x * by).to(dtype).requires_grad_() for x, by in ((q, stretch), (k, stretch), (v, 1)))
    scores = q.double() @ k.double().transpose(2, 3) / 8
    assert 9_900 < scores.abs().max() < 10_100
    may_attend = torch.ones(length, length, dtype=torch.bool).tril() if masked else None
    bias = torch.zeros(1, 2, length, length) if biased else None
    out, _ = function(q, k, v, may_attend, bias)
    for tensor in (out, *torch.autograd.grad(out.float().pow(2).sum(), (q, k, v))):
        assert torch.isfinite(tensor).all()
    if may_attend is not None:
        scores = scores.masked_fill(~may_attend, float("-inf"))
    two = scores.topk(2, dim=-1)
    clear = two.values[..., 0] - two.values[..., 1] > 200  # more than rounding at 10,000 can undo
    clear[..., 0] &= not masked
    assert clear.any()
    winners = v.gather(2, two.indices[..., :1].expand(-1, -1, -1, 64))
    assert torch.equal(out[clear], winners[clear])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_model_at_length_2048(positions: str, kernels: str, dtype: torch.dtype) -> None:
    """Error over all hidden states: root mean square below ε of theirs, largest below 10ε; and it does not grow."""
    built = model(d_model=64, heads=2, decoder_layers=1, positions=positions, kernels=kernels)
    with torch.no_grad():
        wanted = built.hidden(tokens(1, 2048))
        error = (built.to(dtype).hidden(tokens(1, 2048)) - wanted).abs()
    epsilon = torch.finfo(dtype).eps
    assert rms(error) < epsilon * rms(wanted)
    assert error.max() < 10 * epsilon
    assert rms(error[:, -256:]) < 1.2 * rms(error[:, :256])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layout", ["interleaved", "split"])
def test_rotary_positions_stay_distinct(layout: str, dtype: torch.dtype) -> None:
    """bfloat16 cannot tell 256 from 257; the angles must never have been in it."""
    rotary = Rotary(config(d_model=16, heads=2, positions={"kind": "rope", "layout": layout})).to(dtype)
    x = normal(1, 1, 1, 8).expand(1, 1, 5000, 8)
    at = torch.arange(5000)[None]

    def turn(x: Tensor) -> Tensor:
        cos, sin = rotary(at, at, x)["rotation"]
        return rotate(x, cos, sin, layout)

    exact, turned = turn(x), turn(x.to(dtype))
    assert turned.dtype == dtype
    assert (turned.double() - exact).abs().max() < 2 * torch.finfo(dtype).eps * x.abs().max()
    steps = (turned[0, 0, 1:] - turned[0, 0, :-1]).abs().amax(-1)
    assert steps.min() > 0.1  # the fastest pair turns by a radian each position, at 4,999 as at 0


@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_tables_survive_a_change_of_type(kernels: str) -> None:
    """To bfloat16 and back to float64: no rounded table may remain."""
    for positions in POSITIONS:
        built, ids = model(positions=positions, kernels=kernels), tokens(1, 300)
        with torch.no_grad():
            before = built(ids)
            weights = {name: value.clone() for name, value in built.state_dict().items()}
            built.bfloat16()(ids)
            built.double().load_state_dict(weights)
            assert torch.equal(built(ids), before)


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder", "encoder"])
@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("length", [6, 70])
def test_a_row_of_padding_only(length: int, kernels: str, kind: str) -> None:
    """It sees nothing: attention gives it zeros, and no gradient anywhere becomes NaN."""
    real = torch.ones(3, length, dtype=torch.bool)
    real[1] = False
    built = model(kind, kernels=kernels)
    attended: list[Tensor] = []
    for name, module in built.named_modules():
        if name.endswith("cross_attention.out" if kind == "encoder-decoder" else "self_attention.out"):
            module.register_forward_hook(lambda module, inputs, output: attended.append(inputs[0]))
    ids = tokens(3, length)
    out = built(ids, tokens(3, 4), real) if kind == "encoder-decoder" else built(ids, real)
    assert len(attended) == 2
    for mixed in attended:
        assert torch.count_nonzero(mixed[1]) == 0
        assert torch.count_nonzero(mixed[0]) > 0
    out.pow(2).sum().backward()
    assert torch.isfinite(out).all()
    for name, parameter in built.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
