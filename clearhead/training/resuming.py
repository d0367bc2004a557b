"""What may change when a run goes on, decided by what it means.

A run stays the same run while its weights, its vocabulary and its optimizer's memory can go on: architecture,
tokenizer, optimizer, what is frozen and the seed stay. All else may change, and the log says so: rates, clipping,
validation, what is shown and kept, and data. Other data have other batches, so an epoch of them begins; another
validation set or measure makes earlier scores incomparable, so the best one is looked for from there on. Files are
known by their SHA-256, not by their names: a moved one is the same, and one that was changed in its place is refused by
its name, unless it has only grown.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.data.files import expand, find
from clearhead.data.settings import FILE_KEYS
from clearhead.data.store import digest, known_digest
from clearhead.disk import write_whole
from clearhead.errors import InputError, require
from clearhead.reading import SETTINGS, parse_json, read_whole
from clearhead.run import DATA_FILES, TOKENIZER
from clearhead.training.config import Recipe
from clearhead.training.loop import Progress

# What makes another run of it: tables or keys by how their path begins, and those among them that do not.
SAME = (
    *("model.", "tokenizer.", "data.task", "data.symbols", "data.documents", "data.labels"),
    *("training.optimizer", "training.freeze", "training.seed"),
)
FREE = ("model.dropout.", "model.kernels")
TOKENIZERS = ("tokenizer.path", "tokenizer.source_path")

Described = dict[str, list[dict[str, Any]]]  # by the key of the recipe: path, size, time and sha256 of each file


def refuse_changes(
    old: Mapping[str, Any], new: Mapping[str, Any], where: Path, files: Described | None = None
) -> list[str]:
    """What differs and may, a line each; what may not is refused by its name. `files` are compared elsewhere."""
    before, now = flat(old), flat(new)
    if "training" not in old:  # a model that came from elsewhere has no training to agree with, only what it is
        now = {key: value for key, value in now.items() if key in before}
    lines = []
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) == now.get(key) or key.startswith("decoding.") or key.removeprefix("data.") in FILE_KEYS:
            continue
        if key in TOKENIZERS and key in (files or ()):
            continue
        if key.startswith(SAME) and not key.startswith(FREE):
            sized = key.endswith("vocab_size")
            why = f", which is the size of its {TOKENIZER} unless it is set" if sized else ""
            raise InputError(
                f"{where} was begun with {key} = {_shown(before, key)}, now it is {_shown(now, key)}{why}; "
                "give the old value, or another --run folder for a new run"
            )
        lines.append(f"{key} was {_shown(before, key)}, from now on it is {_shown(now, key)}")
    return lines


def describe_files(recipe: Recipe, before: Described) -> Described:
    """The files of the data, and of tokenizers that are there. Where size and time are as written down before, the
    sum is taken from there."""
    known = {(one["path"], one["size"], one["time"]): one["sha256"] for many in before.values() for one in many}
    found: Described = {}
    named = {f"data.{key}": getattr(recipe.data, key) for key in FILE_KEYS}
    named |= {"tokenizer.path": recipe.tokenizer.path, "tokenizer.source_path": recipe.tokenizer.source_path}
    for key, files in named.items():
        if files is None or (key in TOKENIZERS and not expand(files).is_file()):
            continue
        found[key] = []
        for path in find(files):
            about = path.stat()
            one: dict[str, Any] = {"path": str(path), "size": about.st_size, "time": about.st_mtime_ns}
            one["sha256"] = known.get(tuple(one.values())) or known_digest(path)
            found[key].append(one)
    return found


def refuse_changed_files(before: Described, now: Described, where: Path) -> list[str]:
    """What became of the data's files, a line for each that was moved, has grown, came or went."""
    lines = []
    for key in sorted(before.keys() | now.keys()):
        there = {one["path"]: one for one in before.get(key, [])}
        left = {one["sha256"]: one["path"] for one in before.get(key, [])}
        for one in now.get(key, []):
            path, same_place = one["path"], there.get(one["path"])
            if one["sha256"] in left:
                if same_place is None:
                    lines.append(f"{key}: {left[one['sha256']]} is now {path}, byte for byte the same")
                there.pop(left[one["sha256"]], None)
            elif same_place is None and key not in TOKENIZERS:
                lines.append(f"{key}: {path} is new")
            elif same_place is not None and key not in TOKENIZERS and has_grown(one, same_place):
                lines.append(f"{key}: {path} has grown by {one['size'] - same_place['size']:,} bytes")
                there.pop(path)
            elif key.startswith(("data.validation_", "data.test_")):
                lines.append(f"{key}: {path} has changed")
                there.pop(path)
            else:
                raise InputError(
                    f"{key}: {path} is not the file that {where} was begun with "
                    f"(sha256 {one['sha256'][:12]}…, none of those in {where / DATA_FILES}); "
                    "give the old one" + ("" if key in TOKENIZERS else ", or the new one under another name")
                )
        lines += [f"{key}: {path} is no longer part of it" for path in there if key not in TOKENIZERS]
    return lines


def has_grown(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a file begins with all that it was."""
    return now["size"] > before["size"] and digest(Path(now["path"]), before["size"]) == before["sha256"]


def fingerprints(recipe: Recipe, files: Described) -> tuple[str, str]:
    """Sums of all that the batches of an epoch depend on, and of all that makes validations comparable."""
    sums = {key: [one["sha256"] for one in many] for key, many in files.items()}
    held_out = {key: value for key, value in sums.items() if key.startswith("data.validation_")}
    read = {key: value for key, value in recipe.to_dict()["data"].items() if key not in (*FILE_KEYS, "labels")}
    data = [
        {key: sums[key] for key in sums if not key.startswith(("data.validation_", "data.test_", "tokenizer."))},
        read,
    ]
    measured = [held_out or data, recipe.training.measure]
    batches = [data, recipe.training.max_tokens]
    made = [hashlib.sha256(json.dumps(one, sort_keys=True).encode()).hexdigest()[:16] for one in (batches, measured)]
    return made[0], made[1]


def continue_with(progress: Progress, batches: str, measured: str) -> list[str]:
    """Let a run go on with these data and validations; what that means for it, if they are others than before."""
    lines = []
    if progress.batches and progress.batches != batches and (progress.batch or progress.block):
        progress.epoch, progress.block, progress.batch = progress.epoch + 1, 0, 0
        lines.append(f"the batches are others than before: epoch {progress.epoch} begins now")
    if progress.measured and progress.measured != measured:
        progress.best, progress.stale = None, 0
        lines.append("validations are others than before: the best one is looked for from here on")
    progress.batches, progress.measured = batches, measured
    return lines


def read_files(path: Path) -> Described:
    """What was written down of the data; nothing of runs that did not do so yet."""
    if not (path / DATA_FILES).exists():
        return {}
    wanted = {"path": str, "size": int, "time": int, "sha256": str}
    told = f"{path / DATA_FILES} is not what a training writes; without it the run goes on"
    found = parse_json(read_whole(path / DATA_FILES, SETTINGS), path / DATA_FILES)
    require(isinstance(found, dict) and all(isinstance(many, list) for many in found.values()), told)
    for one in (one for many in found.values() for one in many):
        require(isinstance(one, dict) and all(type(one.get(key)) is kind for key, kind in wanted.items()), told)
    return found


def write_files(path: Path, files: Described) -> None:
    write_whole(path / DATA_FILES, json.dumps(files, indent=1) + "\n")


def flat(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{where}{key}.")
        else:
            result[where + key] = value
    return result


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return repr(settings[key]) if key in settings else "unset"
