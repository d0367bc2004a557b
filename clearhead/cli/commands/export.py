"""`clearhead export`: a run in another program's format."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import Checkpoint, RunFolder
from clearhead.interop.export import Format, Quantization


def export(
    run: RunFolder,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write; it must be new or empty.")],
    to: Annotated[Format, typer.Option("--to", metavar="FORMAT", help="transformers, ctranslate2, onnx or numpy.")],
    quantization: Annotated[
        Quantization | None,
        typer.Option(metavar="TYPE", help="With ctranslate2: weights as int8, int16, float16 or bfloat16."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export in DIR.")] = False,
    checkpoint: Checkpoint = "best",
) -> None:
    """Write the model of a run for another program, with its vocabulary; it gives the same there.

    numpy: one short script to read, which needs nothing but NumPy. ctranslate2: a folder for its Translator or
    Generator. onnx: graphs for onnxruntime, with any batch and length. transformers: a folder for from_pretrained.
    A run with a setting that the other program does not have is refused, and the setting named.

    \b
    Examples:
      clearhead export runs/demo demo-numpy --to numpy
      python demo-numpy/model.py "3 March 2029"
      clearhead export runs/demo demo-ct2 --to ctranslate2 --quantization int8
      clearhead export runs/demo demo-hf --to transformers
    """
    from clearhead.interop.export import export as write

    made = write(run, folder, to, checkpoint, quantization, force)
    for name in made.files:
        typer.echo(made.folder / name)
    typer.echo(made.usage, err=True)
