"""Tensors come out as they went in."""

import json
import struct

import pytest
import torch

from clearhead.errors import InputError
from clearhead.explore.wire import Sent, pack, part, pooled, unpack


def test_packs_and_unpacks() -> None:
    torch.manual_seed(0)
    given = {
        "a": torch.randn(2, 3, 5),
        "b": torch.rand(3, 3) > 0.5,
        "c": torch.tensor(1.5),
        "d": torch.empty(0, 4),
        "e": torch.randn(7, dtype=torch.float64),
        "é": torch.full((2,), -torch.inf),
    }
    data = pack([Sent(name, "x", tensor) for name, tensor in given.items()])
    (length,) = struct.unpack_from("<I", data)
    assert (4 + length) % 8 == 0
    rows = json.loads(data[4 : 4 + length])["tensors"]
    assert all(row["offset"] % 8 == 0 for row in rows)
    found = unpack(data)
    assert list(found) == list(given)
    for name, tensor in given.items():
        assert torch.equal(found[name].double(), tensor.float().double() if name != "b" else tensor.double()), name


def test_half_is_half_as_long() -> None:
    tensor = torch.rand(64, 64)
    whole, half = pack([Sent("a", "", tensor)]), pack([Sent("a", "", tensor)], half=True)
    assert len(whole) - len(half) in range(64 * 64 * 2 - 16, 64 * 64 * 2 + 17)
    torch.testing.assert_close(unpack(half)["a"].float(), tensor, rtol=0, atol=5e-4)


@pytest.mark.parametrize("shape", [(2, 100, 70), (1, 5), (3, 64, 65), (1, 2, 512, 512)])
def test_pools_by_the_maximum(shape: tuple[int, ...]) -> None:
    """Each cell is the maximum of its block: nothing sharp is lost, nothing is invented."""
    tensor = torch.rand(*shape)
    found = pooled(tensor, 64)
    high, wide = -(-shape[-2] // 64), -(-shape[-1] // 64)
    assert found.shape == (*shape[:-2], -(-shape[-2] // high), -(-shape[-1] // wide))
    for row in range(0, found.size(-2), 7):
        for column in range(0, found.size(-1), 7):
            block = tensor[..., row * high : (row + 1) * high, column * wide : (column + 1) * wide]
            assert torch.equal(found[..., row, column], block.amax((-2, -1)))


def test_parts() -> None:
    tensor = torch.arange(24).reshape(2, 3, 4)
    assert part(tensor, (1, 2, 3), "x").item() == 23
    assert torch.equal(part(tensor, (), "x"), tensor)
    for wrong in ((2,), (0, 3), (0, 0, 0, 0), (-1,)):
        with pytest.raises(InputError, match=r"x has the shape \(2, 3, 4\)"):
            part(tensor, wrong, "x")
