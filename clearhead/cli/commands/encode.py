"""`clearhead encode`: what an encoder-only model makes of each line."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.filter import Filter
from clearhead.cli.options import Checkpoint, Device, Force, InputFile, RunFolder, Threads, refuse_to_replace
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.decoding.load import LoadedModel

HEADER = 128  # bytes before the rows of a .npy


def encode(
    run: RunFolder,
    file: InputFile = None,
    predict: Annotated[bool, typer.Option("--predict", help="What the task's head says, instead of vectors.")] = False,
    mean: Annotated[bool, typer.Option("--mean", help="One vector a line: the mean over its tokens.")] = False,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="With --mean: bring each vector to length one, as sentence models do.")
    ] = False,
    output: Annotated[Path | None, typer.Option("-o", metavar="OUT.npy", help="With --mean: write one array.")] = None,
    force: Force = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Vectors or predictions of an encoder-only model, one JSON value for each line.

    Vectors are the last hidden states, one for each token. Predictions are the likeliest class of each token or of the
    line, or for a masked-token model the text with every <mask> (BERT's is [MASK]) filled in. A line without
    tokens gives null, and so does one that the tokenizer cannot read, with a warning.

    \b
    Examples:
      clearhead encode runs/count lists.txt --predict
      clearhead encode runs/masked lines.txt --mean -o vectors.npy
      clearhead encode runs/minilm sentences.txt --mean --normalise -o vectors.npy
      echo "the cat <mask> on the mat" | clearhead encode runs/masked --predict
    """
    from clearhead.decoding.answer import prediction
    from clearhead.decoding.load import load

    if predict and mean:
        raise InputError("--predict and --mean: give one of them, predictions or vectors")
    if normalise and not mean:
        raise InputError("--normalise is for one vector a line: it needs --mean")
    if output is not None and not mean:
        raise InputError("-o writes one array with a row for each line: it needs --mean")
    if output is not None:
        refuse_to_replace(output, force)
    model = load(run, checkpoint, device, threads)
    model.model_of_kind("encoder", "encode")
    lines = Filter(file)
    with rows_of(output, model.model.config.d_model) if output is not None else nullcontext() as add:
        for chunk in (part for whole in lines for part in parts(whole)):
            usable = {number: text for number, text in chunk if has_tokens(model, lines, number, text)}
            texts = list(usable.values())
            if predict:
                made: list[Any] = [
                    prediction(model, text, out) for text, out in zip(texts, model.predict(texts), strict=True)
                ]
            else:
                vectors = [states.mean(0) if mean else states for states in model.encode(texts)]
                made = [(one / one.norm().clamp(min=1e-12) if normalise else one).tolist() for one in vectors]
            found = dict(zip(usable, made, strict=True))
            if add is None:
                lines.write([json.dumps(found.get(number), ensure_ascii=False) for number, _ in chunk])
            else:
                for number, _ in chunk:
                    add(found.get(number))


def parts(chunk: list[tuple[int, str]], size: int = 256) -> Iterator[list[tuple[int, str]]]:
    """A few lines at a time: the vectors of all tokens of a large piece of text would take hundreds of megabytes."""
    for start in range(0, len(chunk), size):
        yield chunk[start : start + size]


def has_tokens(model: "LoadedModel", lines: Filter, number: int, text: str) -> bool:
    """Whether there is something to encode in a line."""
    try:
        found = bool(model.tokens(text))
    except InputError as error:
        lines.warn(number, "could not be read: null", str(error))
        return False
    if not found:
        lines.warn(number, "without tokens: null")
    return found


@contextmanager
def rows_of(path: Path, width: int) -> Iterator[Callable[[list[float] | None], None]]:
    """An array that grows row by row under another name and appears whole or not at all; without a vector, of nan."""
    import numpy

    temporary, count = path.with_name(f".{path.name}.{os.getpid()}"), 0

    def add(row: list[float] | None) -> None:
        nonlocal count
        count += 1
        file.write(numpy.array([math.nan] * width if row is None else row, dtype="<f4").tobytes())

    try:
        with open(temporary, "wb") as file:
            file.write(bytes(HEADER))
            yield add
            file.seek(0)
            file.write(npy_header(count, width))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def npy_header(count: int, width: int) -> bytes:
    """NumPy's format 1.0, the description padded so that it has the same length however many rows there are."""
    said = repr({"descr": "<f4", "fortran_order": False, "shape": (count, width)}).encode()
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + said.ljust(HEADER - 11) + b"\n"
