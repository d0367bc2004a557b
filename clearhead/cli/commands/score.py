"""`clearhead score`: the log-probability of text that is already there."""

import json
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import AsJson, Checkpoint, Device, RunFolder, Threads
from clearhead.errors import InputError


def score(
    run: RunFolder,
    source: Annotated[Path | None, typer.Option(metavar="F", help="Source lines.")] = None,
    target: Annotated[Path | None, typer.Option(metavar="F", help="Target lines, one for each source line.")] = None,
    text: Annotated[Path | None, typer.Option(metavar="F", help="For a language model: texts, one a line.")] = None,
    as_json: AsJson = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """The log-probability (base e) of each target given its source, or of each line of a text.

    With --json also that of every token, the end token's last.

    \b
    Examples:
      clearhead score runs/multi30k --source test.en --target test.de
      clearhead score runs/shakespeare --text lines.txt --json
    """
    from clearhead.data.files import read_lines
    from clearhead.decoding.load import load

    if (text is None) == (source is None or target is None) or (source is None) != (target is None):
        raise InputError("score wants --source and --target, or --text for a language model")
    model = load(run, checkpoint, device, threads)
    if text is not None:
        model.model_of_kind("decoder", "score --text")
        lines = read_lines(text)
        found = model.score([line or "\n" for line in lines])
    else:
        model.model_of_kind("encoder-decoder", "score --source and --target")
        assert source is not None
        assert target is not None
        found = model.score(read_lines(source), read_lines(target))
    for one in found:
        if as_json:
            tokens = [model.tokenizer.decode([token]) for token in one.tokens]
            data = {"log_prob": one.log_prob, "tokens": tokens, "log_probs": one.log_probs}
            print(json.dumps(data, ensure_ascii=False))
        else:
            print(f"{one.log_prob:.6f}")
