"""The loss against torch's own, in value and gradient, and its two twins against each other."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import clearhead
from clearhead.data.batch import IGNORE
from clearhead.model import DecoderOnly, EncoderOnly
from clearhead.training import loss as loss_module
from clearhead.training.loss import cross_entropy, fused_cross_entropy, summed_loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 23])
def test_plain_and_fused_equal_torch(smoothing: float, bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "PIECE", 5 * 11)  # several pieces, the last one short
    torch.manual_seed(rows)
    hidden = torch.randn(rows, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    offset = torch.randn(11, dtype=torch.float64, requires_grad=True) if bias else None
    labels = torch.randint(0, 11, (rows,))
    inputs = [t for t in (hidden, weight, offset) if t is not None]
    logits = F.linear(hidden, weight, offset)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    expected_grads = torch.autograd.grad(3 * expected, inputs)
    plain = cross_entropy(F.linear(hidden, weight, offset), labels, smoothing)
    fused = fused_cross_entropy(hidden, weight, offset, labels, smoothing)
    for found in (plain, fused):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        for ours, theirs in zip(torch.autograd.grad(3 * found, inputs), expected_grads, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_fused_never_holds_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "PIECE", 4 * 50)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    hidden, weight = torch.randn(40, 8, requires_grad=True), torch.randn(50, 8, requires_grad=True)
    with Watch():
        fused_cross_entropy(hidden, weight, None, torch.randint(0, 50, (40,)), 0.1).backward()
    assert largest == 50 * 8  # the weight's gradient; all logits would be 40 * 50


def test_large_logits_stay_finite() -> None:
    hidden = torch.full((3, 2), 1e4, requires_grad=True)
    weight = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.5, 0.0]])
    value = fused_cross_entropy(hidden, weight, None, torch.tensor([0, 1, 2]), 0.1)
    value.backward()
    assert value.isfinite()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("kind", ["vocabulary", "masked", "tokens", "pooled"])
def test_summed_loss_counts_only_real_labels(kind: str, kernels: str) -> None:
    torch.manual_seed(0)
    classes = {"classes": 5} if kind in ("tokens", "pooled") else {}
    config = clearhead.configure(
        "tiny",
        vocab_size=13,
        d_model=16,
        d_ff=16,
        kernels=kernels,
        kind="decoder" if kind == "vocabulary" else "encoder",
        head={"kind": kind, **classes},
    )
    model = clearhead.build(config).double().eval()
    assert isinstance(model, DecoderOnly | EncoderOnly)
    tokens = torch.randint(0, 13, (3, 4))
    labels = torch.randint(0, 5, (3,) if kind == "pooled" else (3, 4))
    labels[1] = IGNORE
    hidden = model.hidden(tokens)
    logits = model.head(hidden)
    expected = F.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="sum", label_smoothing=0.1, ignore_index=IGNORE
    )
    torch.testing.assert_close(summed_loss(model, hidden, labels, 0.1), expected, rtol=1e-11, atol=1e-11)


def test_bfloat16_is_close_to_float32() -> None:
    torch.manual_seed(0)
    hidden, weight, labels = torch.randn(64, 32), torch.randn(100, 32) / 32**0.5, torch.randint(0, 100, (64,))
    exact = fused_cross_entropy(hidden, weight, None, labels, 0.1)
    rough = fused_cross_entropy(hidden.bfloat16(), weight, None, labels, 0.1)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=5e-3, atol=0)
