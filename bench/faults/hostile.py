"""Hostile values with right checksums: what nothing but a look at the values themselves reveals."""

import hashlib
import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def sealed(path: Path, content: bytes) -> None:
    """Write a file of a checkpoint together with the checksum that makes it look right."""
    path.write_bytes(content)
    state_path = path.parent / "state.json"
    state = json.loads(state_path.read_text())
    state["sha256"][path.name] = hashlib.sha256(content).hexdigest()
    state_path.write_text(json.dumps(state))


def tensors(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load, save

    found = load(path.read_bytes())
    change(found)
    sealed(path, save(found))


def header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the JSON at the beginning of a safetensors file."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    told = json.loads(content[8 : 8 + size])
    changed = change(told)
    written = json.dumps(told if changed is None else changed).encode()
    sealed(path, struct.pack("<Q", len(written)) + written + content[8 + size :])


def hostile(name: str) -> dict[str, Callable[[Path], None]]:
    """Values that nothing but a look at them reveals, by the kind of file."""
    import torch

    if name.endswith(".safetensors"):

        def one(change: Callable[[Any], Any]) -> Callable[[Path], None]:
            def damage(path: Path) -> None:
                def within(found: dict[str, Any]) -> None:
                    key = next(key for key in sorted(found) if found[key].dim() > 1)
                    found[key] = change(found[key])

                tensors(path, within)

            return damage

        return {
            "nan": one(lambda tensor: tensor * float("nan")),
            "infinity": one(lambda tensor: tensor + float("inf")),
            "another shape": one(lambda tensor: tensor[:1]),
            "fewer columns": one(lambda tensor: tensor[:, :1].contiguous()),
            "integers": one(lambda tensor: tensor.long()),
            "booleans": one(lambda tensor: tensor > 0),
            "half precision": one(lambda tensor: tensor.half()),
            "no elements": one(lambda tensor: torch.zeros(0, 8)),
            "no tensors": lambda path: tensors(path, dict.clear),
            "another tensor": lambda path: tensors(path, lambda found: found.update(evil=torch.ones(2))),
            "a header of 2^63 bytes": lambda path: sealed(path, struct.pack("<Q", 1 << 63) + path.read_bytes()[8:]),
            "offsets beyond the file": lambda path: header(
                path, lambda told: [entry.update(data_offsets=[0, 1 << 40]) for entry in told.values()] and None
            ),
            "a shape of 10^18": lambda path: header(
                path, lambda told: [entry.update(shape=[10**9, 10**9]) for entry in told.values()] and None
            ),
            "a type nobody knows": lambda path: header(
                path, lambda told: [entry.update(dtype="F7") for entry in told.values()] and None
            ),
            "a list for a header": lambda path: header(path, lambda told: [1, 2]),
        }
    if name.endswith("state.json"):
        values: dict[str, Any] = {
            "no keys": {},
            "only the format": {"format": "clearhead-checkpoint-1"},
            "a list": [],
            "null": None,
        }

        def write(value: Any, path: Path) -> None:
            path.write_text(json.dumps(value))

        def changed(key: str, value: Any, path: Path) -> None:
            state = json.loads(path.read_text())
            state[key] = value
            path.write_text(json.dumps(state))

        found: dict[str, Callable[[Path], None]] = {title: partial(write, value) for title, value in values.items()}
        for key in ("step", "progress", "validation", "threads", "sha256"):
            odd: Any
            for odd in (None, -1, "x", [], {}, 1e308, 10**30, {"loss": "low"}):
                found[f"{key} = {odd!r}"] = partial(changed, key, odd)
        return found
    if name == "config.toml":

        def setting(old: str, new: str, path: Path) -> None:
            lines = path.read_text().splitlines()
            place = next((n for n, line in enumerate(lines) if line.startswith(f"{old} =")), None)
            if place is None:
                lines.insert(next(n for n, line in enumerate(lines) if line == "[model]") + 1, f"{old} = {new}")
            else:
                lines[place] = f"{old} = {new}"
            path.write_text("\n".join(lines) + "\n")

        pairs = [
            *(
                (key, value)
                for key in ("d_model", "d_ff", "vocab_size", "heads")
                for value in ("1000000000", "-1", "0")
            ),
            *((key, value) for key in ("encoder_layers", "decoder_layers") for value in ("1000000000", "-3")),
            *((key, value) for key in ("d_model", "kind", "window") for value in ('"wide"', "nan", "[]", "9" * 40)),
        ]
        return {f"{key} = {value}": partial(setting, key, value) for key, value in pairs}
    if name == "data.json":
        entry = {"path": "text.txt", "size": 1, "time": 1, "sha256": "0"}
        odd_values: tuple[Any, ...] = (None, [], {}, -1, 1e308, 10**30, [None], "x")
        tables = [
            *([1], {"data.text": 1}, {"data.text": [1]}, {"data.text": [{}]}, {"data.text": {"a": 1}}),
            *({"data.text": [entry | {key: value}]} for key in entry for value in odd_values),
        ]
        return {f"{table}": partial(lambda table, path: path.write_text(json.dumps(table)), table) for table in tables}
    if name in ("best", "latest"):
        return {
            repr(value): partial(lambda value, path: path.write_bytes(value), value)
            for value in (
                b"/etc\n",
                b"../../other\n",
                b"step_99999999\n",
                b"\xff\xfe\n",
                b"step_1\x1b[2J\n",
                b"a" * 100_000,
            )
        }
    return {}
