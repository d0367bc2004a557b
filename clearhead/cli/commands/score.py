"""`clearhead score`: the log-probability of text that is already there."""

import json
import math
from collections import deque
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.filter import Oddities, for_screen
from clearhead.cli.options import AsJson, Checkpoint, Device, RunFolder, Threads
from clearhead.data.files import count_lines, refuse_missing, text_lines
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.decoding.load import LoadedModel
    from clearhead.decoding.results import Score

CHUNK = 256  # lines in memory at a time


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

    With --json also that of every token, the end token's last. One line in is one line out: a line that the model
    cannot read (more tokens than its positions, a character that is not in its vocabulary) gives nan and a warning.

    \b
    Examples:
      clearhead score runs/multi30k --source test.en --target test.de
      clearhead score runs/shakespeare --text lines.txt --json
    """
    from clearhead.decoding.load import load

    if (text is None) == (source is None or target is None) or (source is None) != (target is None):
        raise InputError("score wants --source and --target, or --text for a language model")
    model = load(run, checkpoint, device, threads)
    if text is not None:
        model.model_of_kind("decoder", "score --text")
        files = [text]
    else:
        model.model_of_kind("encoder-decoder", "score --source and --target")
        assert source is not None
        assert target is not None
        files = [source, target]
    if all(map(is_regular, files)):  # read once before anything is written; a pipe cannot be
        deque(rows(files), maxlen=0)
    lines = Oddities()
    numbered = enumerate(rows(files), 1)
    while chunk := list(islice(numbered, CHUNK)):
        for one in scores(model, lines, chunk):
            print(for_screen(described(model, one)) if as_json else f"{math.nan if one is None else one.log_prob:.6f}")
    lines.tell()


def is_regular(path: Path) -> bool:
    refuse_missing(path)
    return path.is_file()


def rows(files: list[Path]) -> Iterator[tuple[str, ...]]:
    """Line by line what stands side by side in the files; files of different lengths are refused."""
    for row in zip_longest(*map(text_lines, files)):
        if None in row:
            counts = [count_lines(file) if is_regular(file) else None for file in files]
            said = " and ".join(
                f"{file} has {count:,} lines" for file, count in zip(files, counts, strict=True) if count
            )
            raise InputError(f"{said or 'one file has more lines'}: one target for each source is wanted")
        yield row


def scores(model: "LoadedModel", lines: Oddities, chunk: list[tuple[int, tuple[str, ...]]]) -> "Iterator[Score | None]":
    """The scores of some lines; None, with a warning, for one that the model cannot read."""
    readable = {}
    for number, row in chunk:
        if len(row) == 1:
            row = (row[0] or "\n",)  # of an empty line, the probability of its end
        try:
            model.check_scorable(*row)
            readable[number] = row
        except InputError as error:
            lines.warn(number, "could not be scored and gave nan", str(error))
    columns = [list(column) for column in zip(*readable.values(), strict=True)]
    found = iter(model.score(*columns) if columns else [])
    for number, _ in chunk:
        yield next(found) if number in readable else None


def described(model: "LoadedModel", one: "Score | None") -> str:
    if one is None:
        return json.dumps({"log_prob": None, "tokens": [], "log_probs": []})
    tokens = [model.tokenizer.decode([token]) for token in one.tokens]
    return json.dumps({"log_prob": one.log_prob, "tokens": tokens, "log_probs": one.log_probs}, ensure_ascii=False)
