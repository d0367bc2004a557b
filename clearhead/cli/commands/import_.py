"""`clearhead import`: a model that others trained, as a run."""

from pathlib import Path
from typing import Annotated

import typer


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder in Hugging Face's layout, a .bin of llama2.c, or a .json of llm-viz. Nothing is downloaded.",
        ),
    ],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder to make; it must not be there yet.")],
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="F.bin", help="The tokenizer of a llama2.c model, which is a file of its own."),
    ] = None,
) -> None:
    """Make a run of a model that others trained: GPT-2, BERT, Llama, Mistral, Qwen2, Qwen3, Marian, llama2.c.

    Everything is checked before anything is written: every tensor by name and shape, every key of the configuration.
    The result is an ordinary run, which generates, translates, encodes, scores, shows its attention, and trains on.

    \b
    Examples:
      clearhead import ~/models/gpt2 runs/gpt2
      clearhead import stories260K.bin runs/stories --tokenizer tok512.bin
      clearhead train runs/gpt2 --set data.text=mine.txt --set training.steps=100
    """
    from clearhead.interop.incoming import read, write_run
    from clearhead.model import count_parameters

    found = read(source, tokenizer)
    path = write_run(found, run)
    for name in found.left_out:
        typer.echo(f"left out: {name}, of a head that this model does not run", err=True)
    config = found.model.config
    shown = f"{found.kind}, {config.kind}, {count_parameters(config):,} parameters, tokenizer {found.tokenizer.kind}"
    typer.echo(f"imported {source} into {path}: {shown}", err=True)
