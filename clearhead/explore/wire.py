"""How tensors travel to the page: a table in JSON, then the numbers, little-endian.

    bytes 0-3      length N of the table, an unsigned 32-bit integer
    bytes 4-…      the table, UTF-8, filled up with spaces so that 4 + N is a multiple of 8
    after it       the numbers; each tensor starts at its `offset`, counted from here, a multiple of 8

Large attention matrices can be asked for in float16, or pooled: shrunk by the maximum of each block, never the mean,
so that a sharp cell survives.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearhead.errors import InputError

ALIGNED = 8


class Sent(NamedTuple):
    """A tensor, or a part of one, under the name it was asked for by."""

    name: str
    letters: str
    tensor: Tensor
    place: Sequence[int] = ()  # tensor[i][j]…, if it is a part


def pack(tensors: Sequence[Sent], half: bool = False) -> bytes:
    """The bytes of some tensors. Booleans and integers of a byte travel as uint8, all others as floats."""
    table, pieces, offset = [], [], 0
    for sent in tensors:
        found = sent.tensor.detach().cpu()
        if found.dtype == torch.bool:
            found, kind = found.to(torch.uint8), "uint8"
        else:
            found, kind = (found.half(), "float16") if half else (found.float(), "float32")
        data = found.contiguous().numpy().tobytes()
        data += b"\0" * (-len(data) % ALIGNED)
        row: dict[str, Any] = {"name": sent.name, "letters": sent.letters, "shape": list(found.shape)}
        table.append({**row, "index": list(sent.place), "dtype": kind, "offset": offset})
        pieces.append(data)
        offset += len(data)
    header = json.dumps({"tensors": table}, separators=(",", ":")).encode()
    header += b" " * (-(4 + len(header)) % ALIGNED)
    return struct.pack("<I", len(header)) + header + b"".join(pieces)


def unpack(data: bytes) -> dict[str, Tensor]:
    """What `pack` wrote, by name; the page has the same in JavaScript (wire.js)."""
    import numpy as np

    (length,) = struct.unpack_from("<I", data)
    result = {}
    for row in json.loads(data[4 : 4 + length])["tensors"]:
        kind = np.dtype(row["dtype"]).newbyteorder("<")
        count = int(np.prod(row["shape"], dtype=np.int64))
        values = np.frombuffer(data, kind, count, 4 + length + row["offset"]).reshape(row["shape"])
        result[row["name"]] = torch.from_numpy(values.astype(kind.newbyteorder("=")))
    return result


def part(tensor: Tensor, index: Sequence[int], name: str) -> Tensor:
    """tensor[i][j]…, refused by name where there is no such place."""
    if len(index) > tensor.dim() or any(not 0 <= i < size for i, size in zip(index, tensor.shape, strict=False)):
        raise InputError(f"{name} has the shape {tuple(tensor.shape)}: there is no {list(index)!r:.80} in it")
    return tensor[tuple(index)]


def pooled(tensor: Tensor, most: int) -> Tensor:
    """The last two dimensions shrunk to at most `most` each, by the maximum of each block."""
    rows, columns = tensor.shape[-2:]
    high, wide = -(-rows // most), -(-columns // most)
    if high == wide == 1:
        return tensor
    flat = tensor.float().reshape(1, -1, rows, columns)
    shrunk = torch.nn.functional.max_pool2d(flat, (high, wide), ceil_mode=True)
    return shrunk.reshape(*tensor.shape[:-2], *shrunk.shape[-2:])
