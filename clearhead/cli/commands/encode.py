"""`clearhead encode`: what an encoder-only model makes of each line."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.filter import Filter
from clearhead.cli.options import Checkpoint, Device, Force, InputFile, RunFolder, Threads, refuse_to_replace
from clearhead.disk import write_whole
from clearhead.errors import InputError


def encode(
    run: RunFolder,
    file: InputFile = None,
    predict: Annotated[bool, typer.Option("--predict", help="What the task's head says, instead of vectors.")] = False,
    mean: Annotated[bool, typer.Option("--mean", help="One vector a line: the mean over its tokens.")] = False,
    output: Annotated[Path | None, typer.Option("-o", metavar="F.npy", help="With --mean: write one array.")] = None,
    force: Force = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Vectors or predictions of an encoder-only model, one JSON value for each line.

    Vectors are the last hidden states, one for each token. Predictions are the likeliest class of each token or of the
    line, or for a masked-token model the text with every <mask> filled in. A line without tokens gives null.

    \b
    Examples:
      clearhead encode runs/count lists.txt --predict
      clearhead encode runs/masked lines.txt --mean -o vectors.npy
      echo "the cat <mask> on the mat" | clearhead encode runs/masked --predict
    """
    from clearhead.decoding.answer import prediction
    from clearhead.decoding.load import load

    if output is not None and not mean:
        raise InputError("-o writes one array with a row for each line: it needs --mean")
    if output is not None:
        refuse_to_replace(output, force)
    model = load(run, checkpoint, device, threads)
    model.model_of_kind("encoder", "encode")
    lines, rows = Filter(file), []
    for chunk in lines:
        usable = [(number, text) for number, text in chunk if model.tokens(text)]
        for number in {number for number, _ in chunk} - {number for number, _ in usable}:
            lines.warn(number, "without tokens: null")
        texts = [text for _, text in usable]
        if predict:
            made: list[Any] = [
                prediction(model, text, out) for text, out in zip(texts, model.predict(texts), strict=True)
            ]
        else:
            made = [states.mean(0).tolist() if mean else states.tolist() for states in model.encode(texts)]
        found = dict(zip((number for number, _ in usable), made, strict=True))
        if output is None:
            lines.write([json.dumps(found.get(number), ensure_ascii=False) for number, _ in chunk])
        else:
            width = model.model.config.d_model
            rows += [found.get(number, [float("nan")] * width) for number, _ in chunk]
    if output is not None:
        save(output, rows)


def save(path: Path, rows: list[list[float]]) -> None:
    """The array appears whole or not at all."""
    import io

    import numpy

    content = io.BytesIO()
    numpy.save(content, numpy.array(rows, dtype=numpy.float32))
    write_whole(path, content.getvalue())
