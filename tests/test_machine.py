"""The machine: a device is chosen if it is there, and refused with what is."""

import pytest
import torch

from clearhead.errors import InputError
from clearhead.machine import pick_device


def test_a_device_that_is_there_is_taken() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    assert pick_device("auto").type == (accelerator.type if accelerator else "cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "cuda:x", "meta", ""])
def test_an_unknown_device_is_refused_with_those_that_are_there(name: str) -> None:
    with pytest.raises(InputError, match=rf"no device '{name}': this machine has .*cpu.*; name one of these, or auto"):
        pick_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_cuda_where_there_is_none_is_refused_with_the_reason() -> None:
    built = torch.backends.cuda.is_built()
    with pytest.raises(InputError, match="has cpu;" if built else "has cpu, and this PyTorch was built without CUDA;"):
        pick_device("cuda")
