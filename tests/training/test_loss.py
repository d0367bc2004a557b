"""The loss against torch's own, in value and gradient, and its two twins against each other."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import clearhead
from clearhead.data.batch import IGNORE, Batch
from clearhead.model import DecoderOnly, EncoderOnly
from clearhead.training import loss as loss_module
from clearhead.training.loop import Objective
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
    asked = () if smoothing == 0 else (smoothing,)  # none is the default
    plain = cross_entropy(F.linear(hidden, weight, offset), labels, *asked)
    fused = fused_cross_entropy(hidden, weight, offset, labels, *asked)
    for found in (plain, fused):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        for ours, theirs in zip(torch.autograd.grad(3 * found, inputs), expected_grads, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """How many numbers the largest tensor has that is made inside."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


def test_fused_never_holds_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "PIECE", 4 * 50)
    hidden, weight = torch.randn(40, 8, requires_grad=True), torch.randn(50, 8, requires_grad=True)
    with Largest() as largest:
        fused_cross_entropy(hidden, weight, None, torch.randint(0, 50, (40,)), 0.1).backward()
    assert largest.numbers == 50 * 8  # the weight's gradient; all logits would be 40 * 50


def test_fused_holds_16_megabytes_of_logits_at_once() -> None:
    hidden, weight = torch.randn(5_000, 8), torch.randn(1_000, 8)
    with Largest() as largest:
        fused_cross_entropy(hidden, weight, None, torch.randint(0, 1_000, (5_000,)))
    assert 16_000_000 < 4 * largest.numbers <= 1 << 24


def test_neither_does_validation_while_it_looks_for_the_first_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "PIECE", 4 * 500)
    sizes = {"d_model": 16, "heads": 2, "d_ff": 32, "decoder_layers": 1, "encoder_layers": 0, "kind": "decoder"}
    model = clearhead.build(clearhead.configure("tiny", vocab_size=500, **sizes))
    objective = Objective(model, 0.1, torch.float32).eval()
    tokens = torch.randint(0, 500, (4, 10))
    with torch.no_grad(), Largest() as largest:
        objective(Batch({"tokens": tokens}, tokens, 40), True)
    assert largest.numbers == 500 * 16  # the matrix; all logits would be 40 * 500


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
    choices = torch.empty_like(labels[labels != IGNORE])
    for asked in (None, choices):
        torch.testing.assert_close(summed_loss(model, hidden, labels, 0.1, asked), expected, rtol=1e-11, atol=1e-11)
    assert torch.equal(choices, logits.argmax(-1)[labels != IGNORE])
    plain = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum", ignore_index=IGNORE)
    torch.testing.assert_close(summed_loss(model, hidden, labels), plain, rtol=1e-11, atol=1e-11)


def test_a_model_without_classes_has_no_loss() -> None:
    for kind in ("pooled", "none"):
        model = EncoderOnly(clearhead.configure("tiny", vocab_size=13, kind="encoder", head={"kind": kind}))
        hidden = model.hidden(torch.zeros(1, 2, dtype=torch.long))
        with pytest.raises(clearhead.InputError, match=rf"head\.kind = '{kind}' without head\.classes gives no logits"):
            summed_loss(model, hidden, torch.zeros(1, dtype=torch.long))


def test_bfloat16_is_close_to_float32() -> None:
    torch.manual_seed(0)
    hidden, weight, labels = torch.randn(64, 32), torch.randn(100, 32) / 32**0.5, torch.randint(0, 100, (64,))
    exact = fused_cross_entropy(hidden, weight, None, labels, 0.1)
    rough = fused_cross_entropy(hidden.bfloat16(), weight, None, labels, 0.1)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=5e-3, atol=0)


def test_sums_over_rows_and_classes_are_not_rounded_to_16_bits() -> None:
    """Smoothing adds up all states and all classes. Small whole numbers make every logit exact in bfloat16, which has
    no whole number between 1,000 and 1,004: only a sum kept in 16 bits can be off."""
    torch.manual_seed(0)
    hidden = torch.randint(0, 3, (1003, 8)).bfloat16()
    weight = torch.randint(-1, 3, (517, 8)).bfloat16()
    bias, labels = torch.randint(0, 3, (517,)).bfloat16(), torch.randint(0, 517, (1003,))
    for offset in (None, bias):
        logits = F.linear(hidden.double(), weight.double(), None if offset is None else offset.double())
        exact = F.cross_entropy(logits, labels, label_smoothing=0.3, reduction="sum")
        for found in (
            fused_cross_entropy(hidden, weight, offset, labels, 0.3),
            cross_entropy(F.linear(hidden, weight, offset), labels, 0.3),
        ):
            assert found.dtype == torch.float32
            assert float(found) == pytest.approx(float(exact), rel=2e-6)


def test_gradients_of_many_rows_add_up_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept in bfloat16, a sum of a thousand small parts stops growing when a part is below half a step of it."""
    torch.manual_seed(0)
    monkeypatch.setattr(loss_module, "PIECE", 100)  # a row at a time
    hidden = torch.ones(1000, 4).bfloat16()
    weight = (torch.randn(100, 4) / 10).bfloat16().requires_grad_()
    labels = torch.zeros(1000, dtype=torch.long)
    fused_cross_entropy(hidden, weight, None, labels).backward()
    exact = weight.detach().double().requires_grad_()
    F.cross_entropy(hidden.double() @ exact.T, labels, reduction="sum").backward()
    assert weight.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(weight.grad.double(), exact.grad, rtol=0.02, atol=0)
