"""The JSON of llm-viz (bbycroft/llm-viz): tensors by name, as a shape and base64 of float32, beside a `config`.

Its models come from minGPT, so their names are those of that family.
"""

import base64
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.interop import families
from clearhead.model import Transformer
from clearhead.reading import read_whole


def read_tensors(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings and the tensors of a file, whether they are weights or activations."""
    written = read_whole(path)
    try:
        content = json.loads(written)
        settings = content.pop("config")
        tensors = {name: decode(entry) for name, entry in content.items()}
    except (ValueError, IndexError, KeyError, RecursionError, TypeError, AttributeError, RuntimeError) as error:
        raise InputError(f"{path}: not a model of llm-viz: {type(error).__name__}: {error}") from None
    return settings, tensors


def decode(entry: dict[str, Any]) -> Tensor:
    if entry["dtype"] != "torch.float32":
        raise ValueError(f"dtype {entry['dtype']!r} is not 'torch.float32'")
    return torch.frombuffer(bytearray(base64.b64decode(entry["data"])), dtype=torch.float32).view(entry["shape"])


def read(path: str | Path) -> Transformer:
    """The model of a file."""
    return families.read("mingpt", *read_tensors(path))
