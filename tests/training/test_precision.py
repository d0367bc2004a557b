"""Sixteen bits: the scale of float16 rises and falls, updates go by the gradient itself, every precision learns."""

import math

import pytest
import torch

from clearhead.training.loop import GROWTH, Loop, Progress
from tests.training import small
from tests.training.test_loop import settings


def test_float16_lowers_its_scale_and_skips_instead() -> None:
    torch.manual_seed(0)
    model = small.model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    chosen = settings(steps=1, precision="float16")
    loop = Loop(model, small.splits().train, chosen, progress=Progress(scale=1e38))
    loop.run()
    assert loop.update.skipped
    assert loop.progress.scale == 5e37
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_float16_raises_its_scale_after_a_steady_while() -> None:
    loop = Loop(small.model(), small.splits().train, settings(steps=1, precision="float16"))
    loop.progress = Progress(scale=8.0, steady=GROWTH - 2)
    assert loop.finite(1, 1.0, [0])
    assert (loop.progress.scale, loop.progress.steady) == (8.0, GROWTH - 1)
    assert loop.finite(2, 1.0, [0])
    assert (loop.progress.scale, loop.progress.steady) == (16.0, 0)
    loop.progress.steady = 5
    assert not loop.finite(3, math.inf, [0])
    assert (loop.progress.scale, loop.progress.steady) == (8.0, 0)


def test_float32_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    """`torch.autocast` says that it does nothing in 32 bits, unless it is turned off."""
    Loop(small.model(), small.splits().train, settings(steps=1)).run()
    assert [str(one.message) for one in recwarn] == []


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_every_precision_computes_in_its_type(precision: str) -> None:
    loop = Loop(small.model(), small.splits().train, settings(steps=1, precision=precision))
    assert loop.objective.precision == getattr(torch, precision)


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_float16_updates_by_the_gradient_and_not_by_its_scale(clip: float) -> None:
    """Adam forgets the scale of its gradients, unless ε is large: then it steps in proportion to them."""
    changes, norms = {}, {}
    for precision, scale in (("float32", 1.0), ("float16", 1.0), ("float16", 2.0), ("float16", 2.0**14)):
        torch.manual_seed(0)
        model = small.model()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        chosen = settings(steps=1, warmup=0, schedule="constant", precision=precision, epsilon=10.0, clip=clip)
        loop = Loop(model, small.splits().train, chosen, progress=Progress(scale=scale))
        loop.run()
        assert not loop.update.skipped
        norms[precision, scale] = loop.update.norm
        changes[precision, scale] = torch.cat([(t - before[n]).flatten() for n, t in model.state_dict().items()])
    assert norms["float16", 1.0] == pytest.approx(norms["float32", 1.0], rel=0.02)
    assert norms["float16", 2.0**14] == pytest.approx(norms["float32", 1.0], rel=0.02)
    size = changes["float32", 1.0].norm()
    for found in changes.values():
        assert (found - changes["float32", 1.0]).norm() < 0.05 * size


@pytest.mark.parametrize(
    ("precision", "optimizer"),
    [("float32", "adamw"), ("float32", "muon"), ("bfloat16", "adam"), ("bfloat16", "muon"), ("float16", "adam")],
)
def test_every_precision_and_optimizer_learns(precision: str, optimizer: str) -> None:
    torch.manual_seed(0)
    parts, losses = small.splits(), []
    decay = 0.0 if optimizer == "adam" else 0.1
    chosen = settings(steps=30, precision=precision, optimizer=optimizer, weight_decay=decay, peak=1e-2)
    loop = Loop(small.model(), parts.train, chosen, callbacks=[lambda loop: losses.append(loop.update.loss)])
    loop.run()
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert all(p.dtype == torch.float32 for p in loop.model.parameters())
