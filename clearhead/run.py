"""A run is a folder: everything one training made, readable without the code that made it.

    config.toml        the settings, resolved: what `clearhead train` was told and every default it filled in
    tokenizer.json     text to ids and back; with two vocabularies, source_tokenizer.json beside it
    checkpoints/       step_00000500/{model.safetensors, optimizer.safetensors, state.json}, perhaps average/
    latest, best       one line each: the name of a checkpoint
    metrics.jsonl      one JSON object a line; train.log, plots/ beside it

A checkpoint appears whole or not at all: it is written into a folder under another name, forced to the disk, and
renamed. `state.json` holds the SHA-256 of the files beside it, so that damage is found when they are read, not when
the model talks nonsense. Nothing here is pickle. Only what is asked for must be whole: a damaged checkpoint is in
nobody's way but of those who name it.
"""

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.disk import beside, make_folder, put_in_place, remove, sync_folder, write_synced
from clearhead.errors import InputError, require
from clearhead.reading import SETTINGS, parse_json, parse_toml, read_whole

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.model import ModelConfig, Transformer
    from clearhead.tokenizer.base import Tokenizer

DATA_FILES = "data.json"  # what the data were read from
FORMAT = "clearhead-checkpoint-1"
STEP = re.compile(r"step_\d{1,18}", re.ASCII)
CONFIG, TOKENIZER, SOURCE_TOKENIZER, MODEL, OPTIMIZER, STATE = (
    "config.toml",
    "tokenizer.json",
    "source_tokenizer.json",
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
        """The tables of config.toml as plain dictionaries; without that of the model it is not what was written."""
        tables = read_toml(self.path / CONFIG)
        if not isinstance(tables.get("model"), dict):
            raise InputError(f"{self.path / CONFIG}: no [model] in it, so it is not what the run was begun with")
        return tables

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

    def source_tokenizer(self) -> "Tokenizer | None":
        """That of the source, where an encoder-decoder has two vocabularies."""
        from clearhead.tokenizer import load

        path = self.path / SOURCE_TOKENIZER
        return load(path) if path.is_file() else None

    def data_files(self) -> dict[str, str]:
        """The SHA-256 of each file that the data were read from, by its path, as training wrote it down."""
        path = self.path / DATA_FILES
        if not path.is_file():
            return {}
        found = parse_json(read_whole(path, SETTINGS), path)
        try:
            return {one["path"]: one["sha256"] for many in found.values() for one in many}
        except (AttributeError, KeyError, TypeError):
            raise InputError(f"{path} does not say which files the data were read from") from None

    def tokenizers(self, config: "ModelConfig") -> "tuple[Tokenizer, Tokenizer | None]":
        """Both, after the check that the model has a row for each of their tokens."""
        target, source = self.tokenizer(), self.source_tokenizer()
        own = config.source_vocab_size
        if source is None and own is not None:
            two = f"model.source_vocab_size = {own}"
            raise InputError(f"{self.path / CONFIG}: {two}, but there is no {SOURCE_TOKENIZER} beside it")
        rows = config.vocab_size
        for name, one, most in ((TOKENIZER, target, rows), (SOURCE_TOKENIZER, source, own or rows)):
            if one is not None and one.size > most:
                raise InputError(f"{self.path / name}: the tokenizer has {one.size} tokens, the model only {most}")
        return target, source

    def checkpoints(self) -> list[Path]:
        """The folders of all steps kept, oldest first; `average` is not one of them."""
        found = [path for path in (self.path / "checkpoints").glob("step_*") if STEP.fullmatch(path.name)]
        return sorted(found, key=step_of)

    def checkpoint(self, name: str = "best") -> Path:
        """The folder that `best`, `latest`, `average` or `step_N` stands for. Without validation, best is latest."""
        if name in ("best", "latest"):
            folder = self._pointed(name)
        elif name == "average":
            folder = self.path / "checkpoints" / "average"
            if not folder.is_dir():
                raise InputError(f"{self.path} has no averaged weights; `clearhead average {self.path}` makes them")
        elif STEP.fullmatch(name):
            folder = self.path / "checkpoints" / step_name(int(name[5:]))
        else:
            raise InputError(f"checkpoint {name!r} is not one of best, latest, average or step_N")
        if not folder.is_dir():
            kept = ", ".join(path.name for path in self.checkpoints()) or "none"
            raise InputError(f"{self.path} has no checkpoint {folder.name} (asked for as {name!r}); it has: {kept}")
        return folder

    def _pointed(self, name: str) -> Path:
        """The checkpoint that the file `best` or `latest` names. A kill may come before either is written: then the
        newest checkpoint is the latest, and the latest one knows which is best."""
        pointer = self.path / name
        if os.path.lexists(pointer):
            found = read_whole(pointer, SETTINGS, pipes=False)
            target = found.strip().decode("ascii", "replace")
            wanted = f"the name of a checkpoint in {self.path / 'checkpoints'}, such as step_00000500"
            if name == "best" and target == "average" and (self.path / "checkpoints" / "average").is_dir():
                return self.checkpoint("average")
            require(bool(STEP.fullmatch(target)), f"{pointer} holds {found[:80]!r}, not {wanted}")
        elif name == "latest":
            kept = self.checkpoints()
            require(bool(kept), f"{self.path} has no checkpoint yet")
            target = kept[-1].name
        else:
            latest = self._pointed("latest")
            progress = read_state(latest).get("progress") if latest.is_dir() else None
            best = progress.get("best_step") if isinstance(progress, dict) else None
            target = step_name(best) if best and isinstance(best, int) else latest.name
        return self.path / "checkpoints" / target

    def inventory(self) -> list[Kept]:
        """What is kept: all steps, oldest first, then `average`. What a training removes meanwhile is left out."""
        named = {mark: self._named(mark) for mark in ("best", "latest", "average")}
        average = named.pop("average")
        result = []
        for folder in [*self.checkpoints(), *([average] if average else [])]:
            step = None if folder == average else step_of(folder)
            state: dict[str, Any] = {}
            problem = None
            size = 0
            try:
                size = sum(path.lstat().st_size for path in folder.iterdir())
                state = read_state(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                problem = f"cannot read {folder}: {error.strerror}"
            except InputError as error:
                problem = str(error)
            marks = {mark: folder == target for mark, target in named.items()}
            loss = validation_loss(state)
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
        try:
            return read_tensors(folder, MODEL, read_state(folder))
        except InputError as error:
            instead = self._whole_before(folder)
            hint = f"; {instead.name} before it is whole: --checkpoint {instead.name}" if instead else ""
            raise InputError(f"{error}{hint}") from None

    def _whole_before(self, folder: Path) -> Path | None:
        """The newest older checkpoint whose weights are whole."""
        if STEP.fullmatch(folder.name):
            for older in reversed([path for path in self.checkpoints() if step_of(path) < step_of(folder)]):
                with contextlib.suppress(InputError):
                    checked(older, MODEL, read_state(older))
                    return older
        return None

    def build(self, name: str = "best") -> "Transformer":
        """The model with these weights, ready for inference."""
        import torch

        from clearhead.model import build
        from clearhead.skeleton import skeleton

        weights = self.weights(name)
        where, config = self.checkpoint(name) / MODEL, self.model_config
        fits_config = f"{where} does not fit {self.path / CONFIG}"
        layers = config.encoder_layers + config.decoder_layers
        require(layers <= len(weights), f"{fits_config}: {len(weights)} tensors cannot be {layers:,} layers")
        try:  # shapes without memory: a hostile size must not be allocated to be refused
            wanted = skeleton(config).state_dict()
        except InputError as error:
            raise InputError(f"{self.path / CONFIG}: {error}") from None
        check_weights(weights, wanted, fits_config)
        with torch.random.fork_rng(devices=[]):  # the random weights are replaced at once: leave no trace of them
            model = build(config)
        model.load_state_dict(weights, assign=True)
        return model.eval()


def step_name(step: int) -> str:
    return f"step_{step:08d}"


def step_of(folder: Path) -> int:
    return int(folder.name[5:])


def check_weights(weights: "Mapping[str, Tensor]", wanted: "Mapping[str, Tensor]", complaint: str) -> None:
    """Refuse, by name, a tensor that a model of these parameters does not have, lacks, or cannot compute with."""
    for key in sorted(wanted.keys() | weights.keys()):
        shapes = [tuple(tensors[key].shape) if key in tensors else None for tensors in (weights, wanted)]
        if shapes[0] != shapes[1]:
            found, right = ("none at all" if shape is None else shape for shape in shapes)
            raise InputError(f"{complaint}: tensor {key!r} has shape {found}, the configuration wants {right}")
        require(weights[key].is_floating_point(), f"{complaint}: tensor {key!r} is of {weights[key].dtype}, not floats")
        alike = weights[key].dtype == weights[min(weights)].dtype
        require(alike, f"{complaint}: tensor {key!r} is of {weights[key].dtype}, others of another type")
        require(bool(weights[key].isfinite().all()), f"{complaint}: tensor {key!r} has values that are not finite")


# ---- reading -------------------------------------------------------------------------------------------------------


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file of settings."""
    return parse_toml(read_whole(path, SETTINGS, pipes=False), path)


def read_state(folder: Path) -> dict[str, Any]:
    """The state.json of a checkpoint, as far as all that read it rely on it."""
    path = folder / STATE
    if folder.is_dir() and not os.path.lexists(path):
        raise InputError(f"checkpoint {folder} is incomplete: it has no {STATE}")
    state = parse_json(read_whole(path, SETTINGS, pipes=False), f"checkpoint {folder} is damaged: {STATE}")
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise InputError(f"{path}: format {found!r:.80} is not {FORMAT!r}")
    step, sums, validation = state.get("step"), state.get("sha256"), state.get("validation", {})
    require(type(step) is int and step >= 0, f"{path}: step must be a whole number, not {step!r:.80}")
    if STEP.fullmatch(folder.name):
        require(step == step_of(folder), f"{path}: step {step} is not that of {folder.name}")
    require(isinstance(sums, dict), f"{path}: sha256 must be a table of files, not {sums!r:.80}")
    scores = isinstance(validation, dict) and all(type(score) in (int, float) for score in validation.values())
    require(scores, f"{path}: validation must be a table of scores, not {validation!r:.80}")
    return state


def validation_loss(state: Mapping[str, Any], measure: str = "loss") -> float | None:
    """The loss of the validation at a checkpoint's step, or another measure of it, if there was one."""
    loss = state.get("validation", {}).get(measure)
    return None if loss is None or not math.isfinite(loss) else float(loss)


def read_tensors(folder: Path, file: str, state: Mapping[str, Any]) -> "dict[str, Tensor]":
    """One safetensors file of a checkpoint, refused if its bytes are not the ones that were written."""
    from safetensors.torch import load

    content = checked(folder, file, state)
    try:
        return load(content)
    except Exception as error:  # its own, torch's, and KeyError for a type that neither knows
        raise InputError(f"{folder / file} is not a safetensors file that can be read: {error!r:.200}") from None


def checked(folder: Path, file: str, state: Mapping[str, Any]) -> bytes:
    """A file of a checkpoint, with the bytes that state.json says it has."""
    if not os.path.lexists(folder / file):
        raise InputError(f"checkpoint {folder} is incomplete: it has no {file}")
    content = read_whole(folder / file, pipes=False)
    wanted, found = state["sha256"].get(file), hashlib.sha256(content).hexdigest()
    if wanted != found:
        raise InputError(f"checkpoint {folder} is damaged: SHA-256 of {file} is {found}, {STATE} says {wanted!s:.80}")
    return content


# ---- writing -------------------------------------------------------------------------------------------------------


def write_checkpoint(folder: Path, files: "Mapping[str, Mapping[str, Tensor]]", state: Mapping[str, Any]) -> None:
    """Write the tensors of each file and state.json with their checksums; `folder` appears whole or not at all."""
    from safetensors.torch import save

    make_folder(folder.parent)
    temporary = beside(folder)
    remove(temporary)
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
        put_in_place(temporary, folder)  # where an average may stand, or the same step before a resume
    except OSError as error:
        raise InputError(f"cannot write checkpoint {folder}: {error.strerror}; earlier ones are untouched") from error
    finally:
        remove(temporary)
