"""Dropout: its rate, its scale, its gradient, both twins; and that it acts where the configuration says."""

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.model.attention import attention, fused_attention
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.dropout import dropout, plain_dropout
from clearhead.model.feedforward import FeedForward
from clearhead.model.residual import Residual
from tests.model.helpers import close, config, model, normal, randomise, tokens


def fused(x: Tensor, p: float) -> Tensor:
    return dropout(x, p, training=True, fused=True)


TWINS = pytest.mark.parametrize("drop", [plain_dropout, fused])
RATES = pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.5, 0.9])


@TWINS
@RATES
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rate_and_scale(p: float, drop: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    count = 200_003  # no multiple of anything
    out = drop(torch.ones(count, dtype=dtype), p)
    assert out.dtype == dtype
    kept = torch.count_nonzero(out).item()
    assert abs(kept - (1 - p) * count) < 4 * math.sqrt(p * (1 - p) * count)
    values = out[out != 0].unique()
    # one value, 1/(1 − p), up to a rate in steps of 1/65,536 and the rounding of the type
    assert len(values) == 1
    assert values.item() == pytest.approx(1 / (1 - p), rel=max(1 / 65_536 / (1 - p), torch.finfo(dtype).eps))


@RATES
def test_the_scale_follows_the_rate_as_rounded(p: float) -> None:
    """Of 65,536 equally likely values so many are dropped; what is kept is scaled by exactly that share."""
    torch.manual_seed(0)
    values = fused(torch.ones(1000, dtype=torch.float64), p).unique().tolist()
    assert values[-1] == 65_536 / (65_536 - round(p * 65_536))


@TWINS
@RATES
def test_expectation_stays(p: float, drop: Any) -> None:
    torch.manual_seed(1)
    x = normal(7, 11)
    mean = torch.stack([drop(x, p) for _ in range(4000)]).mean(0)
    deviation = x.abs() * math.sqrt(p / (1 - p) / 4000)
    assert ((mean - x).abs() < 5 * deviation).all()


@TWINS
def test_gradient_uses_the_mask_of_the_value(drop: Any) -> None:
    torch.manual_seed(2)
    x = normal(50, 40, grad=True)
    out = drop(x, 0.3)
    gradient = torch.autograd.grad(out.sum(), x)[0]
    close(gradient * x, out)
    assert 0 < torch.count_nonzero(gradient) < gradient.numel()


@TWINS
def test_values_are_dropped_apart(drop: Any) -> None:
    """Neighbours, lanes of one random word and rows are independent: no correlation above chance."""
    torch.manual_seed(3)
    kept = (drop(torch.ones(400_000), 0.5) != 0).double() - 0.5
    for lag in (1, 2, 3, 4, 5, 8, 64, 1000):
        correlation = (kept[lag:] * kept[:-lag]).mean() / 0.25
        assert abs(correlation) < 5 / math.sqrt(400_000)


@TWINS
def test_seed_decides_what_is_dropped(drop: Any) -> None:
    x, results = torch.ones(1000), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(drop(x, 0.5))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@TWINS
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5, 1, 3)], ids=str)
def test_any_shape(drop: Any, shape: tuple[int, ...]) -> None:
    out = drop(torch.ones(shape), 0.5)
    assert out.shape == shape
    assert set(out.unique().tolist()) <= {0.0, 2.0}


@TWINS
def test_transposed_views(drop: Any) -> None:
    x = normal(6, 7, 8).transpose(0, 2)
    out = drop(x, 0.5)
    kept = out != 0
    close(out[kept], 2 * x[kept])


def test_does_nothing_in_evaluation_or_at_rate_zero() -> None:
    x = normal(5)
    assert dropout(x, 0.5, training=False, fused=True) is x
    assert dropout(x, 0.0, training=True, fused=True) is x


@pytest.mark.parametrize("p", [0.9999, 0.999999, 1e-7])
def test_extreme_rates_stay_finite(p: float) -> None:
    torch.manual_seed(0)
    assert torch.isfinite(fused(torch.ones(300_000), p)).all()


# ---- where it acts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["residual", "embedding", "attention", "hidden"])
@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_each_rate_acts_on_its_own(place: str, kernels: str) -> None:
    rates = dict.fromkeys(("residual", "embedding", "attention", "hidden"), 0.0)
    built = model("encoder-decoder", dropout={**rates, place: 0.5}, kernels=kernels).train()
    inputs = tokens(2, 6), tokens(2, 5, seed=1)
    assert not torch.equal(built(*inputs), built(*inputs))
    still = model("encoder-decoder", dropout=rates, kernels=kernels)
    close(still.train()(*inputs), built.eval()(*inputs))


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_residual_drops_the_sublayer_and_never_x(placement: str) -> None:
    torch.manual_seed(0)
    part = Residual(config(norm={"placement": placement}, dropout={"residual": 0.25})).double().train()
    part.norm = torch.nn.Identity()
    x = normal(40, 24)
    out = part(x, torch.ones_like(x))
    added = out - x
    kept = added.abs() > 1e-9
    close(added[kept], torch.full_like(added[kept], 4 / 3))
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.06)


def test_embedding_and_hidden_layer() -> None:
    torch.manual_seed(0)
    built = model(dropout={"embedding": 0.3}).train()
    out = built.embedding(tokens(8, 50), AttentionInputs(positions=torch.arange(50)[None], longest=50))
    assert (out == 0).double().mean().item() == pytest.approx(0.3, abs=0.03)
    part = FeedForward(config(d_model=24, d_ff=24, bias=False, dropout={"hidden": 0.3})).double().train()
    randomise(part)
    part.outer.weight.data = torch.eye(24, dtype=torch.float64)
    hidden = part(normal(50, 24))
    steady = part.eval()(normal(50, 24))
    alive = steady != 0
    assert (hidden[alive] == 0).double().mean().item() == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize("keys", [12, 80])
def test_attention_weights_are_dropped(function: Any, keys: int) -> None:
    """Each draw zeroes weights and scales the rest by 1/(1 − p); on average nothing changes."""
    torch.manual_seed(0)
    q, k = normal(1, 2, 3, 8), normal(1, 2, keys, 8, seed=1)
    v = torch.eye(keys, dtype=torch.float64).expand(1, 2, keys, keys)  # the output then shows the weights
    exact, weights = attention(q, k, v)
    draws = torch.stack([function(q, k, v, None, None, False, 0.25)[0] for _ in range(600)])
    kept = draws[0] != 0
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.12)
    close(draws[0][kept], weights[kept] / 0.75, 1e-4)
    assert ((draws.mean(0) - exact).abs() < 5 * weights * math.sqrt(1 / 3 / 600)).all()


def test_tracing_a_training_pass_runs_the_plain_code() -> None:
    built = model(dropout={"residual": 0.5, "attention": 0.5}).train()
    with clearhead.trace(built) as seen:
        built(tokens(2, 6))
    for weights in seen.named("weights").values():
        close(weights.sum(-1), torch.ones_like(weights[..., 0]))  # shown before dropout


@pytest.mark.parametrize("place", ["residual", "embedding", "attention", "hidden"])
def test_plain_kernels_drop_as_the_code_reads(place: str) -> None:
    """From one seed they drop what a traced pass drops, which always runs the plain code; the fused twin draws anew."""

    def train(kernels: str, traced: bool) -> Tensor:
        built = model("encoder-decoder", dropout={place: 0.5}, kernels=kernels).train()
        torch.manual_seed(0)
        with clearhead.trace(built) if traced else nullcontext():
            return built(tokens(2, 6), tokens(2, 5, seed=1))

    as_read = train("fused", traced=True)
    close(train("plain", traced=False), as_read)
    assert not torch.allclose(train("fused", traced=False), as_read)
