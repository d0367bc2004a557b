"""Other people's models in: read from where they lie, used at once or written as a run.

A source is a folder in Hugging Face's layout, a flat file of llama2.c (its tokenizer is another), or a JSON of llm-viz.
Everything is read and checked before anything is written; the run then appears whole or not at all.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch

from clearhead.decoding.load import LoadedModel
from clearhead.disk import beside, make_folder, remove, write_whole
from clearhead.errors import InputError
from clearhead.interop import family, llama2c, llmviz
from clearhead.interop.families import of_type
from clearhead.interop.folder import read_settings, read_weights
from clearhead.interop.tokenizers import read_tokenizers
from clearhead.model import Transformer
from clearhead.run import CONFIG, MODEL, OPTIMIZER, SOURCE_TOKENIZER, TOKENIZER, step_name, write_checkpoint
from clearhead.settings import to_dict
from clearhead.tokenizer import Integers, Tokenizer
from clearhead.tokenizer.pieces import read_llama2c


@dataclass(frozen=True)
class Incoming:
    """A model of somebody else's, as ours."""

    model: Transformer
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer | None
    source: str  # where it lay
    kind: str  # whose it is: a model_type, llama2.c, llm-viz
    left_out: tuple[str, ...] = ()  # tensors that our model has no use for


def read(source: str | os.PathLike[str], tokenizer: str | os.PathLike[str] | None = None) -> Incoming:
    """The model and tokenizer of a source; `tokenizer` is for files that come without one."""
    path = Path(source)
    if path.is_dir():
        if tokenizer is not None:
            raise InputError(f"--tokenizer {tokenizer}: a folder has its own; {path} is one")
        return read_folder(path)
    if not path.exists():
        raise InputError(f"no such file or folder: {path} (nothing is downloaded: give a path on this machine)")
    if path.suffix == ".json":
        if tokenizer is not None:
            raise InputError(f"--tokenizer {tokenizer}: the models of llm-viz read numbers, and need none")
        return read_llmviz(path)
    if path.suffix in (".safetensors", ".pt", ".pth", ".ckpt"):
        raise InputError(f"{path}: give the folder that it lies in, with its config.json and tokenizer")
    model = llama2c.read(path)
    if tokenizer is None:
        raise InputError(f"{path} is a file of llama2.c, which comes without its tokenizer: give it, --tokenizer F.bin")
    pieces = read_llama2c(Path(tokenizer), model.config.vocab_size)
    pieces.around = (pieces.special["<s>"],), ()
    return Incoming(model, pieces, None, str(path), "llama2.c")


def read_folder(path: Path) -> Incoming:
    """A folder in Hugging Face's layout."""
    settings = read_settings(path)
    try:
        one = of_type(settings.get("model_type"))
    except InputError as error:
        raise InputError(f"{path / 'config.json'}: {error}") from None
    state = read_weights(path)
    try:
        model = family.read(one, settings, state)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    tokenizer, source = read_tokenizers(path, settings)
    config = model.config
    for found, rows in ((tokenizer, config.vocab_size), (source, config.source_vocab_size or config.vocab_size)):
        if found is not None and found.size > rows:
            raise InputError(f"{path}: its tokenizer has {found.size} tokens, its model only {rows}")
    if config.source_vocab_size is not None and source is None:
        raise InputError(f"{path}: its model has a vocabulary for the source alone, but there is only one tokenizer")
    left_out = family.left_out(one, model.config, state)
    return Incoming(model, tokenizer, source, str(path), one.model_type, left_out)


def read_llmviz(path: Path) -> Incoming:
    """llm-viz's model, which sorts a few small numbers and has a vocabulary of nothing else."""
    model = llmviz.read(path)
    return Incoming(model, Integers(model.config.vocab_size, special=()), None, str(path), "llm-viz")


def from_pretrained(source: str | os.PathLike[str], tokenizer: str | os.PathLike[str] | None = None) -> LoadedModel:
    """A model of other people's from this machine, ready to use: `clearhead.from_pretrained("gpt2/").generate("…")`."""
    found = read(source, tokenizer)
    return LoadedModel(
        found.model, found.tokenizer, documents="file", name=found.source, source_tokenizer=found.source_tokenizer
    )


def write_run(found: Incoming, folder: str | os.PathLike[str]) -> Path:
    """An ordinary run with this model as its only checkpoint, at step 0. The folder must not be there yet."""
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} is there already: give another folder")
    make_folder(path.parent)
    temporary = beside(path)
    remove(temporary)
    try:
        make_folder(temporary)
        write_whole(temporary / CONFIG, tomli_w.dumps({"model": to_dict(found.model.config)}))
        found.tokenizer.save(temporary / TOKENIZER)
        if found.source_tokenizer is not None:
            found.source_tokenizer.save(temporary / SOURCE_TOKENIZER)
        tensors = {name: tensor.detach().float() for name, tensor in found.model.state_dict().items()}
        files: dict[str, Any] = {MODEL: tensors, OPTIMIZER: {}}
        write_checkpoint(temporary / "checkpoints" / step_name(0), files, state(found))
        write_whole(temporary / "latest", step_name(0) + "\n")
        if path.exists():
            path.rmdir()
        os.rename(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    finally:
        remove(temporary)
    return path


def state(found: Incoming) -> dict[str, Any]:
    """What a checkpoint knows besides its tensors, before the first step: no optimizer remembers anything yet."""
    return {
        "step": 0,
        "imported": {"from": found.source, "kind": found.kind},
        "progress": {},
        "threads": torch.get_num_threads(),
        "unmoved": [name for name, _ in found.model.named_parameters()],
    }
