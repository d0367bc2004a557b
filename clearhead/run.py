"""A run is a folder: everything one training made, readable without the code that made it.

    config.toml        the settings, resolved: what `clearhead train` was told and every default it filled in
    tokenizer.json     text to ids and back
    checkpoints/       step_00000500/{model.safetensors, optimizer.safetensors, state.json}, perhaps average/
    latest, best       one line each: the name of a checkpoint
    metrics.jsonl      one JSON object a line; train.log, plots/ beside it

A checkpoint appears whole or not at all: it is written into a folder under another name, forced to the disk, and
renamed. `state.json` holds the SHA-256 of the files beside it, so that damage is found when they are read, not when
the model talks nonsense. Nothing here is pickle.
"""

import hashlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.disk import sync_folder, write_synced
from clearhead.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.model import ModelConfig, Transformer
    from clearhead.tokenizer.base import Tokenizer

FORMAT = "clearhead-checkpoint-1"
CONFIG, TOKENIZER, MODEL, OPTIMIZER, STATE = (
    "config.toml",
    "tokenizer.json",
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
)


@dataclass(frozen=True)
class Kept:
    """A checkpoint as it lies on the disk, described without reading its tensors."""

    name: str  # what Run.checkpoint takes
    step: int | None  # of an average: the newest of its parts
    bytes: int
    loss: float | None  # of the validation at this step, if there was one
    best: bool  # whether Run.checkpoint("best") is this one
    latest: bool
    problem: str | None = None  # why it cannot be used, if that can be told from its state.json


class Run:
    """A finished or unfinished training, read only."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(f"no run at {self.path}; `clearhead train RECIPE --run {self.path}` makes one")
        if not (self.path / CONFIG).is_file():
            raise InputError(f"{self.path} is not a run: it has no {CONFIG}")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The tables of config.toml as plain dictionaries."""
        return read_toml(self.path / CONFIG)

    @cached_property
    def model_config(self) -> "ModelConfig":
        from clearhead.model import ModelConfig
        from clearhead.settings import from_dict

        try:
            return from_dict(ModelConfig, self.settings.get("model", {}), "model.")
        except InputError as error:
            raise InputError(f"{self.path / CONFIG}: {error}") from None

    def tokenizer(self) -> "Tokenizer":
        from clearhead.tokenizer import load

        path = self.path / TOKENIZER
        if not path.is_file():
            raise InputError(f"{self.path} has no {TOKENIZER}")
        return load(path)

    def checkpoints(self) -> list[Path]:
        """The folders of all steps kept, oldest first; `average` is not one of them."""
        found = [path for path in (self.path / "checkpoints").glob("step_*") if re.fullmatch(r"step_\d+", path.name)]
        return sorted(found, key=step_of)

    def checkpoint(self, name: str = "best") -> Path:
        """The folder that `best`, `latest`, `average` or `step_N` stands for. Without validation, best is latest."""
        if name in ("best", "latest"):
            pointer = self.path / name
            if name == "best" and not pointer.is_file():
                pointer = self.path / "latest"
            if not pointer.is_file():
                raise InputError(f"{self.path} has no checkpoint yet")
            folder = self.path / "checkpoints" / pointer.read_text().strip()
        elif name == "average":
            folder = self.path / "checkpoints" / "average"
            if not folder.is_dir():
                raise InputError(f"{self.path} has no averaged weights; `clearhead average {self.path}` makes them")
        elif re.fullmatch(r"step_\d+", name):
            folder = self.path / "checkpoints" / step_name(int(name[5:]))
        else:
            raise InputError(f"checkpoint {name!r} is not one of best, latest, average or step_N")
        if not folder.is_dir():
            kept = ", ".join(path.name for path in self.checkpoints()) or "none"
            raise InputError(f"{self.path} has no checkpoint {folder.name} (asked for as {name!r}); it has: {kept}")
        return folder

    def inventory(self) -> list[Kept]:
        """What is kept: all steps, oldest first, then `average`. What a training removes meanwhile is left out."""
        named = {mark: self._named(mark) for mark in ("best", "latest", "average")}
        average = named.pop("average")
        result = []
        for folder in [*self.checkpoints(), *([average] if average else [])]:
            step = None if folder == average else step_of(folder)
            state: dict[str, Any] = {}
            problem = None
            try:
                size = sum(path.stat().st_size for path in folder.iterdir())
                state = read_state(folder)
            except FileNotFoundError:
                continue
            except InputError as error:
                problem = str(error)
            loss = (state.get("validation") or {}).get("loss")
            marks = {mark: folder == target for mark, target in named.items()}
            result.append(Kept(folder.name, state.get("step", step), size, loss, **marks, problem=problem))
        return result

    def _named(self, name: str) -> Path | None:
        try:
            return self.checkpoint(name)
        except InputError:
            return None

    def weights(self, name: str = "best") -> "dict[str, Tensor]":
        """The model's tensors by name, checksum verified."""
        folder = self.checkpoint(name)
        return read_tensors(folder, MODEL, read_state(folder))

    def build(self, name: str = "best") -> "Transformer":
        """The model with these weights, ready for inference."""
        import torch

        from clearhead.model import build

        weights = self.weights(name)
        with torch.random.fork_rng(devices=[]):  # the random weights are replaced at once: leave no trace of them
            model = build(self.model_config)
        wanted = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
        found = {key: tuple(tensor.shape) for key, tensor in weights.items()}
        for key in sorted(wanted.keys() | found.keys()):
            if wanted.get(key) != found.get(key):
                raise InputError(
                    f"{self.checkpoint(name) / MODEL} does not fit {self.path / CONFIG}: tensor {key!r} "
                    f"has shape {found.get(key, 'none at all')}, the configuration wants {wanted.get(key, 'none')}"
                )
        model.load_state_dict(weights, assign=True)
        return model.eval()


def step_name(step: int) -> str:
    return f"step_{step:08d}"


def step_of(folder: Path) -> int:
    return int(folder.name[5:])


# ---- reading -------------------------------------------------------------------------------------------------------


def read_toml(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def read_state(folder: Path) -> dict[str, Any]:
    """The state.json of a checkpoint."""
    path = folder / STATE
    try:
        state = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"checkpoint {folder} is incomplete: it has no {STATE}") from None
    except ValueError as error:
        raise InputError(f"checkpoint {folder} is damaged: {STATE} is not valid JSON ({error})") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else state
        raise InputError(f"{path}: format {found!r} is not {FORMAT!r}")
    return state


def read_tensors(folder: Path, file: str, state: Mapping[str, Any]) -> "dict[str, Tensor]":
    """One safetensors file of a checkpoint, refused if its bytes are not the ones that were written."""
    from safetensors.torch import load

    try:
        content = (folder / file).read_bytes()
    except FileNotFoundError:
        raise InputError(f"checkpoint {folder} is incomplete: it has no {file}") from None
    wanted, found = state["sha256"].get(file), hashlib.sha256(content).hexdigest()
    if wanted != found:
        raise InputError(f"checkpoint {folder} is damaged: SHA-256 of {file} is {found}, {STATE} says {wanted}")
    return load(content)


# ---- writing -------------------------------------------------------------------------------------------------------


def write_checkpoint(folder: Path, files: "Mapping[str, Mapping[str, Tensor]]", state: Mapping[str, Any]) -> None:
    """Write the tensors of each file and state.json with their checksums; `folder` appears whole or not at all."""
    from safetensors.torch import save

    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".{folder.name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        sums = {}
        for name, tensors in files.items():
            content = save({key: tensor.contiguous() for key, tensor in tensors.items()})
            sums[name] = hashlib.sha256(content).hexdigest()
            write_synced(temporary / name, content)
        described = {"format": FORMAT, **state, "sha256": sums}
        write_synced(temporary / STATE, (json.dumps(described, indent=1) + "\n").encode())
        sync_folder(temporary)
        if folder.exists():  # the same step again (an average, a step repeated after a resume): replace it
            old = folder.parent / f".old.{folder.name}.{os.getpid()}"
            os.rename(folder, old)
            os.rename(temporary, folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(temporary, folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise InputError(f"cannot write checkpoint {folder}: {error.strerror}; earlier ones are untouched") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
