"""Weights in eight bits: what they stand for, that decoding uses exactly that, and who is refused."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from clearhead.decoding import int8
from clearhead.decoding.compiled import compiled, multiply
from clearhead.decoding.fast_steps import FastDecoding
from clearhead.decoding.int8 import Int8Linear, check_precision, rounded
from clearhead.decoding.steps import ModelSteps
from clearhead.errors import InputError
from clearhead.model import DecoderOnly, EncoderDecoder, build, configure


def test_each_row_has_its_own_scale_and_no_number_is_off_by_more_than_half_a_step() -> None:
    weight = torch.randn(5, 40) * torch.tensor([[1e-3], [1.0], [1e3], [0.0], [7.0]])
    integers, scales = rounded(weight)
    assert integers.dtype == torch.int8
    assert integers.abs().amax(1).tolist() == [127, 127, 127, 0, 127]
    assert ((integers * scales[:, None] - weight).abs() <= scales[:, None] * 0.5001).all()


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_and_many_are_the_same_product(rows: int, bias: bool) -> None:
    pytest.importorskip("numba")
    torch.manual_seed(0)
    weight, added, x = torch.randn(300, 500), torch.randn(300) if bias else None, torch.randn(rows, 500)
    made = Int8Linear(weight, added)
    integers, scales = rounded(weight)
    wanted = torch.nn.functional.linear(x.double(), integers.double() * scales[:, None].double())
    wanted = wanted if added is None else wanted + added
    torch.testing.assert_close(made(x).double(), wanted, rtol=1e-4, atol=1e-4)
    assert made(x[:, None]).shape == (rows, 1, 300)


def test_machine_code_is_kept_for_the_next_process() -> None:
    pytest.importorskip("numba")
    assert compiled.__wrapped__().stats.cache_path  # type: ignore[attr-defined]


def test_the_loop_as_read() -> None:
    rows, integers = np.ones((2, 3), np.float32), np.array([[1, 2, 3], [-4, 5, 0]], np.int8)
    out = np.empty((2, 2), np.float32)
    multiply(rows * [[1], [2]], integers, np.array([0.5, 2.0]), np.array([1.0, 0.0]), out)
    assert out.tolist() == [[4.0, 2.0], [7.0, 4.0]]


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_decoding_is_that_of_the_model_with_rounded_weights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own steps, on a copy whose linear maps have the rounded weights, merged matrices rounded apart."""
    pytest.importorskip("numba")
    monkeypatch.setattr(int8, "LARGE", 1)  # so that every map is rounded
    torch.manual_seed(1)
    settings = {"kind": kind, "vocab_size": 50, "d_model": 64, "heads": 4, "d_ff": 128, "head": {"tied": False}}
    model = build(configure(**settings, encoder_layers=2, decoder_layers=2, dropout=0.0)).eval()
    assert isinstance(model, EncoderDecoder | DecoderOnly)
    copy = deepcopy(model)
    for name, weight in copy.named_parameters():
        if weight.dim() == 2 and name.startswith(("decoder.", "output.")):
            integers, scales = rounded(weight.detach())
            weight.data = integers * scales[:, None]
    source = torch.randint(4, 50, (2, 9)) if kind == "encoder-decoder" else None
    prompts = [[1], [1]]
    with torch.inference_mode():
        fast, plain = FastDecoding(model, "int8").steps(source), ModelSteps(copy, source, None)
        found, wanted = fast.start(prompts), plain.start(prompts)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
        exact = ModelSteps(model, source, None).start(prompts)
        assert not torch.allclose(exact, wanted, atol=1e-4)  # else nothing was rounded
        for number in range(6):
            tokens = torch.tensor([5 + number, 9 + number])
            found, wanted = fast.step(tokens), plain.step(tokens)
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="precision is 'int4'; wanted: float32 or int8"):
        check_precision("int4", torch.device("cpu"))
    with pytest.raises(InputError, match="int8 is for the CPU, not for cuda"):
        check_precision("int8", torch.device("cuda"))
    monkeypatch.setattr(int8, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'clearhead\[fast\]'"):
        check_precision("int8", torch.device("cpu"))
