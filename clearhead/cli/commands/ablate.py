"""`clearhead ablate`: what each head and each layer is worth for one text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import AsJson, Checkpoint, Device, Force, RunFolder, Threads, refuse_to_replace
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.explore.worth import Worths

MOST = 2000  # letters of a text or a target


def ablate(
    run: RunFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads.")],
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The answer to score; the model's own unless given.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, max=512, metavar="N", help="How much of its own a language model writes.")
    ] = 16,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help="Also a picture: x.png, x.svg or x.pdf.")
    ] = None,
    force: Force = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """What each head and each layer is worth: the log-probability (in nats) that the answer loses without it.

    The answer is not written again, it is scored: read in one pass, with the head's context set to zero, or with the
    layer adding nothing. Worths do not add up; where two heads do the same, neither alone is missed. Of an
    encoder-only model, the answer is what its head says of the text (for <mask>, the tokens behind the gaps).

    \b
    Examples:
      clearhead ablate runs/demo "3 mars 2029"
      clearhead ablate runs/demo "3 mars 2029" --target 2029-03-03 -o worth.svg
      clearhead ablate runs/shakespeare "To be, or not" --max-tokens 8 --json
    """
    from clearhead.decoding.load import load
    from clearhead.explore.readings import given_answer, read_text
    from clearhead.explore.worth import worths
    from clearhead.explore.worth_pictures import FORMATS, draw_worths
    from clearhead.explore.writing import own_answer

    for name, given in (("TEXT", text), ("--target", target or "")):
        if len(given) > MOST:
            raise InputError(f"{name} has {len(given):,} letters: at most {MOST:,} are read")
    if not text.strip():
        raise InputError("TEXT is empty: there is nothing to take apart")
    if output is not None:
        if output.suffix.lower() not in FORMATS:
            raise InputError(f"cannot draw {output}: its name must end in one of {', '.join(FORMATS)}")
        refuse_to_replace(output, force)
    text = text.encode("utf-8", "replace").decode()
    model = load(run, checkpoint, device, threads)
    reading = read_text(model, text)
    if target is None:
        reading = own_answer(model, reading, max_tokens)
    else:
        reading = given_answer(model, reading, target.encode("utf-8", "replace").decode())
    found = worths(model, reading)
    classes = model.model.config.head.classes
    said = [str(label) if classes else model.tokenizer.decode([label]) for label in reading.answer]
    if as_json:
        print_json(found, text, said)
    else:
        print_table(found, text, said)
    if output is not None:
        draw_worths(found, output, f"{text}  →  {''.join(said)}   log-probability {sum(found.log_probs):.2f}")
        typer.echo(f"wrote {output}", err=True)


def print_json(found: "Worths", text: str, said: list[str]) -> None:
    """First what was scored, then an object for each head and each layer."""
    rows = [{"text": text, "tokens": said, "log_prob": sum(found.log_probs), "log_probs": found.log_probs}]
    rows += [{"head": one.name, "worth": one.worth, "by_token": one.by_token} for one in found.heads]
    rows += [{"layer": one.name, "worth": one.worth, "by_token": one.by_token} for one in found.layers]
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def print_table(found: "Worths", text: str, said: list[str]) -> None:
    """A row for each attention with its heads, then the layers; the worthiest are named below."""
    from rich.text import Text

    from clearhead.cli.tables import plain_table, screen
    from clearhead.errors import visible
    from clearhead.explore.worth_pictures import by_attention, number

    rows, console = by_attention(found.heads), screen()
    answer = visible("".join(said))
    console.print(Text(f"{visible(text)}  →  {answer}   log-probability {number(sum(found.log_probs))}"))
    columns = max(len(row) for row in rows.values())
    table = plain_table("nats lost without", *(f"head {head + 1}" for head in range(columns)))
    for name, row in rows.items():
        table.add_row(name, *(number(one.worth) for one in row))
    console.print()
    console.print(table)
    layers = plain_table("without the layer", "")
    for one in found.layers:
        layers.add_row(one.name, number(one.worth))
    console.print()
    console.print(layers)
    best = max(found.heads, key=lambda one: one.worth)
    token = max(range(len(said)), key=lambda place: best.by_token[place])
    console.print()
    console.print(
        Text(
            f"Worth most: {best.name}, {number(best.worth)} nats; of these {number(best.by_token[token])} "
            f"for token {token + 1}, {visible(said[token])!r}."
        )
    )
