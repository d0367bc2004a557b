"""A model's folder in Hugging Face's layout: `config.json`, and weights as safetensors in one file or several.

What is in such a folder was written by strangers. Nothing in it is executed (a `.bin` is a pickle, and a pickle is a
program), no name in it leads out of it, and no size in it is believed before the file has been looked at.
"""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.errors import InputError
from clearhead.reading import SETTINGS, opened, parse_json, read_whole

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
HEADER = 100 << 20  # bytes that the names of a safetensors file may take, as its own library has it
CONVERT = (
    'python -c "import sys, transformers as t; c = t.AutoConfig.from_pretrained(sys.argv[1]); '
    'getattr(t, c.architectures[0]).from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])" {0} {0}-safe'
)


def read_settings(folder: Path) -> dict[str, Any]:
    """The `config.json` of a folder."""
    path = folder / "config.json"
    if not path.exists():
        raise InputError(f"{folder} has no config.json: not a folder in Hugging Face's layout")
    content = parse_json(read_whole(path, SETTINGS), path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: an object is wanted, not a {type(content).__name__}")
    return content


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder by name."""
    if (folder / WEIGHTS).exists():
        return read_safetensors(folder / WEIGHTS)
    if not (folder / INDEX).exists():
        raise InputError(f"{folder} has neither {WEIGHTS} nor {INDEX}{_instead(folder)}")
    places = read_index(folder / INDEX)
    for file in sorted(set(places.values())):
        if not (folder / file).exists():
            raise InputError(f"{folder / file} is missing: {INDEX} places tensors there")
    result: dict[str, Tensor] = {}
    for file in sorted(set(places.values())):
        for name, tensor in read_safetensors(folder / file).items():
            if places.get(name) != file:
                where = places.get(name, "nowhere")
                raise InputError(f"{folder / file} has the tensor {name!r}, which {INDEX} places {where}")
            result[name] = tensor
    missing = sorted(places.keys() - result.keys())
    if missing:
        raise InputError(f"{folder / places[missing[0]]} lacks the tensor {missing[0]!r}, which {INDEX} places there")
    return result


def read_index(path: Path) -> dict[str, str]:
    """Which file holds which tensor; every file lies beside the index and nowhere else."""
    content = parse_json(read_whole(path, SETTINGS), path)
    places: Any = content.get("weight_map") if isinstance(content, Mapping) else None
    if not isinstance(places, dict) or not places:
        raise InputError(f"{path}: weight_map is {places!r:.80}, and a table of tensors and files is wanted")
    for name, file in places.items():
        if not isinstance(file, str) or file != os.path.basename(file) or not file.endswith(".safetensors"):
            raise InputError(f"{path}: the file of {name!r} is {file!r:.80}; a .safetensors beside the index is wanted")
    return places


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of one file, refused if it is cut short or is something else."""
    from safetensors import safe_open

    with opened(path, pipes=False) as file:
        size, start = os.fstat(file.fileno()).st_size, file.read(8)
    header = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 0 < header <= min(HEADER, max(0, size - 8)):
        wanted = f"it begins with the length of its header, {header:,}, and has {size:,} bytes"
        raise InputError(f"{path} is not a safetensors file, or cut short: {wanted}")
    try:
        with safe_open(path, framework="pt") as found:
            return {name: found.get_tensor(name) for name in found.keys()}  # noqa: SIM118 (not a dict)
    except Exception as error:  # its own, torch's, and KeyError for a type that neither knows
        raise InputError(f"{path} is not a safetensors file that can be read: {error!r:.200}") from None


def _instead(folder: Path) -> str:
    """What to do where there are only weights of a kind that is not read."""
    pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern))
    if not pickles:
        return ""
    return (
        f"; {pickles[0]} is a pickle, a program that runs when it is read, and is not read here. Where you trust it: "
        + CONVERT.format(folder)
    )
