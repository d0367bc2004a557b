"""`clearhead generate`: let a language model go on."""

import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.filter import Filter, for_screen
from clearhead.cli.options import (
    AsJson,
    Checkpoint,
    Device,
    Precision,
    RunFolder,
    Settings,
    Threads,
    chosen_settings,
    finite,
)
from clearhead.decoding_settings import MOST
from clearhead.errors import InputError
from clearhead.ranges import MOST as COUNTABLE

if TYPE_CHECKING:
    from clearhead.decoding.load import LoadedModel
    from clearhead.decoding.results import Continuation


def generate(
    run: RunFolder,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Text to go on from; none: from the start.")] = "",
    max_tokens: Annotated[
        int | None, typer.Option(min=1, max=MOST["max_tokens"], metavar="N", help="Write at most this many tokens.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, callback=finite, metavar="T", help="0: always the likeliest token.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, max=COUNTABLE, metavar="K", help="Only the K likeliest tokens.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, callback=finite, metavar="P", help="Only the likeliest with P of probability."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=-COUNTABLE, max=COUNTABLE, metavar="N", help="The same seed gives the same text.")
    ] = 0,
    samples: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="This many continuations of each prompt.")
    ] = 1,
    prompts: Annotated[Path | None, typer.Option(metavar="FILE", help='A prompt a line; "-": standard input.')] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="A prompt in the terminal, for one text after another.")
    ] = False,
    set_: Settings = None,
    as_json: AsJson = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
    precision: Precision = "float32",
) -> None:
    """Continue a text. One prompt is written out as it grows; with --prompts, each line is continued in one line.

    Settings not given are those of the run; --set changes any of its table `decoding` (min_p, no_repeat_ngram, …).

    \b
    Examples:
      clearhead generate runs/shakespeare "ROMEO:" --seed 3
      clearhead generate runs/shakespeare --max-tokens 500 --temperature 0.7
      clearhead generate runs/stories "Once upon a time" --samples 5 --json
      clearhead generate runs/stories --prompts first.txt --set no_repeat_ngram=4
      clearhead generate runs/stories --interactive
    """
    from clearhead.cli.interactive import converse
    from clearhead.decoding.load import load

    if prompt and prompts is not None:
        raise InputError(f"PROMPT {prompt!r} and --prompts {prompts}: give one of them")
    if interactive:
        refuse_others(prompt, prompts, samples, as_json)
    model = load(run, checkpoint, device, threads, precision)  # type: ignore[arg-type]  # load checks it
    model.model_of_kind("decoder", "generate")
    changes = {
        **chosen_settings(set_),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
    }
    if interactive:
        converse(lambda line, number: itertools.chain([line], model.stream(line, seed=seed + number, **changes)))
    elif prompts is not None:
        continue_lines(model, prompts, seed, samples, changes, as_json)
    elif as_json or samples > 1:
        for continuation in model.generate(prompt, seed=seed, samples=samples, **changes):
            data = json.dumps(described(continuation), ensure_ascii=False) if as_json else prompt + continuation.text
            print(for_screen(data))
    else:
        pieces = model.stream(prompt, seed=seed, **changes)
        sys.stdout.write(
            for_screen(prompt + next(pieces))
        )  # the first piece first: a mistake shows before anything is written
        for piece in pieces:
            sys.stdout.write(for_screen(piece))
            sys.stdout.flush()
        sys.stdout.write("\n")


def refuse_others(prompt: str, prompts: Path | None, samples: int, as_json: bool) -> None:
    """A conversation has neither prompts of its own nor columns."""
    from clearhead.cli.interactive import at_a_terminal

    given = {"PROMPT": bool(prompt), "--prompts": prompts is not None, "--samples": samples > 1, "--json": as_json}
    for name in (name for name, there in given.items() if there):
        raise InputError(f"--interactive and {name}: give one of them")
    if not at_a_terminal():
        raise InputError("--interactive needs a terminal; for lines from a file or a pipe there is --prompts")


def continue_lines(
    model: "LoadedModel", file: Path, seed: int, samples: int, changes: dict[str, Any], as_json: bool
) -> None:
    """The filter: every line with its continuations, in columns of one line or as one object."""
    lines = Filter(file)
    for chunk in lines:
        readable = {number: text for number, text in chunk if usable(model, lines, number, text)}
        made = iter(model.generate(list(readable.values()), seed=seed, samples=samples, **changes))
        written = []
        for number, text in chunk:
            pool = [next(made) for _ in range(samples)] if number in readable else []
            if as_json:
                data = {"line": number, "prompt": text, "continuations": [described(one) for one in pool]}
                written.append(json.dumps(data, ensure_ascii=False))
            else:
                written.append("\t".join((text + one.text).replace("\t", " ") for one in pool))
        lines.write(written)


def usable(model: "LoadedModel", lines: Filter, number: int, text: str) -> bool:
    """Whether a line is a prompt: something the tokenizer knows, and not too long."""
    if not text.strip():
        return False
    most = model.settings.max_source
    try:
        length = len(model.prompt(text)) if len(text) <= 64 * most else most + 1
    except InputError as error:
        lines.warn(number, "could not be read and gave an empty line", str(error))
        return False
    if length > most:
        lines.warn(number, f"longer than {most} tokens and gave an empty line")
    return length <= most


def described(made: "Continuation") -> dict[str, Any]:
    return {
        "text": made.text,
        "log_prob": made.log_prob,
        "finished": made.finished,
        "tokens": made.tokens,
        "log_probs": made.log_probs,
    }
