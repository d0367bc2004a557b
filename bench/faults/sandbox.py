"""A place to make mistakes in: four small runs, a tokenizer, texts, a recipe, and files that are not what they say."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import tomli_w
import torch
from safetensors.torch import save_file

from clearhead.data.settings import DataSettings, TokenizerSettings
from clearhead.data.splits import build as build_data
from clearhead.decoding_settings import DecodingSettings
from clearhead.interop.families import FAMILIES
from clearhead.interop.family import write
from clearhead.model import build, configure
from clearhead.run import step_name, write_checkpoint
from clearhead.settings import merge, to_dict
from clearhead.tokenizer import train as train_tokenizer
from clearhead.training.config import Recipe, TrainingSettings

SMALL = {"preset": "tiny", "d_model": 16, "heads": 2, "d_ff": 16, "encoder_layers": 1, "decoder_layers": 1}
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dogs", "ran", "far", "from", "us", "all", "day"]
STEPS = 4
RECIPE = """
[data]
task = "copy"
examples = 20
held_out = 2
[model]
preset = "tiny"
d_model = 16
heads = 2
d_ff = 16
encoder_layers = 1
decoder_layers = 1
[training]
steps = 1
samples = 0
threads = 1
"""

DATA_KEYS = ("text", "tsv", "labelled")
Snapshot = dict[str, tuple[int, int, int]]


class Sandbox:
    """`here` is where the commands are called; everything else lies beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.here = folder, folder / "here"
        self.here.mkdir()
        folder.chmod(0o755)
        lines = [" ".join(WORDS[i % 7 : i % 7 + 5]) for i in range(40)]
        (folder / "lines.txt").write_text("\n".join(lines[:3]) + "\n")
        (folder / "text.txt").write_text("\n".join(lines) + "\n")
        (folder / "ids.txt").write_text("5 6 7\n\n8\n")
        (folder / "baseline.json").write_text('{"accepted": []}')
        (folder / "empty.txt").touch()
        (folder / "garbage.bin").write_bytes(bytes(range(256)) * 4)
        (folder / "folder").mkdir()
        os.mkfifo(folder / "pipe")
        for key in DATA_KEYS:
            (folder / f"{key}.toml").write_text(f'[data]\n{key} = ""\n[tokenizer]\nkind = "characters"\n')
        (folder / "secret.txt").write_text("nobody may read this\n")
        (folder / "secret.txt").chmod(0)
        (folder / "recipe.toml").write_text(RECIPE)
        train_tokenizer(lines, 280, workers=1).save(folder / "tokenizer.json")
        text = str(folder / "text.txt")
        write_run(folder / "pairs", DataSettings(source=text, target=text))
        write_run(folder / "text", DataSettings(text=text, documents="line", context=32))
        write_foreign(folder / "foreign", folder / "tokenizer.json")
        (folder / "plan.toml").write_text('exercises = ["attention"]\n')
        (folder / "labels.tsv").write_text("".join(f"{line}\t{line.split()[0]}\n" for line in lines if line[0] in "tc"))
        (folder / "token.txt").write_text("a-token-that-is-long-enough\n")
        write_run(folder / "labels", DataSettings(labelled=str(folder / "labels.tsv"), labels=("cat", "the")))
        write_run(folder / "encoder", DataSettings(task="masked", text=text, documents="line", context=32))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def snapshot(self) -> Snapshot:
        """What lies where, how large and since when."""
        found = {}
        for folder, folders, files in os.walk(self.folder):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                state = os.lstat(path)
                is_folder = name in folders  # whose time and size change with what is put in and taken out again
                found[path] = (state.st_ino, *((0, 0) if is_folder else (state.st_size, state.st_mtime_ns)))
        return found

    def clean(self, before: Snapshot) -> None:
        """Take away what is new since then."""
        for path in sorted(set(self.snapshot()) - set(before)):
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            elif os.path.lexists(path):
                os.unlink(path)


def write_run(path: Path, data: DataSettings) -> None:
    """A run as training leaves it, but with random weights: it takes no time, and to a mistake it is all the same."""
    training = TrainingSettings(steps=STEPS, validate_every=1, keep_last=STEPS)
    recipe = Recipe(data, SMALL, TokenizerSettings(kind="characters"), training, DecodingSettings(max_tokens=5))
    splits = build_data(data, None, recipe.tokenizer)
    config = recipe.model_config(splits.train.kind, splits.train.head, splits.tokenizer.size)
    settings = merge(recipe.to_dict(), {"model": to_dict(config)})
    settings["model"].pop("preset")
    weights = build(config).state_dict()
    for step in range(1, STEPS + 1):
        state = {"step": step, "validation": {"loss": 1 / step}}
        write_checkpoint(path / "checkpoints" / step_name(step), {"model.safetensors": weights}, state)
        with open(path / "metrics.jsonl", "a") as metrics:
            row = {"step": step, "loss": 1 / step, "rate": 1e-3, "norm": 1.0, "validation": {"loss": 1 / step}}
            metrics.write(json.dumps(row) + "\n")
    splits.tokenizer.save(path / "tokenizer.json")
    (path / "config.toml").write_text(tomli_w.dumps(settings))
    for name in ("latest", "best"):
        (path / name).write_text(step_name(STEPS) + "\n")


def write_foreign(path: Path, tokenizer: Path) -> None:
    """Somebody else's model: a GPT-2 with random weights, as a folder in Hugging Face's layout."""
    shape = {"vocab_size": 280, "d_model": 16, "heads": 2, "d_ff": 16, "decoder_layers": 1}
    config = configure("gpt2", **shape, positions={"kind": "learned", "max_length": 32})
    settings, tensors = write(FAMILIES["gpt2"], config, build(config).state_dict())
    path.mkdir()
    (path / "config.json").write_text(json.dumps(settings))
    save_file(tensors, path / "model.safetensors")
    shutil.copy(tokenizer, path / "tokenizer.json")


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads do not survive a fork
    try:
        with TemporaryDirectory() as name:
            yield Sandbox(Path(name).resolve())
    finally:
        torch.set_num_threads(threads)
