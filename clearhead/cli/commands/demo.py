"""`clearhead demo`: train the default recipe, then show what it learned and where it looks."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from clearhead.cli.invocation import activation, invocation
from clearhead.cli.options import RecipeSettings, left_as_it_was, refuse_a_file
from clearhead.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.data.dates import Dates
    from clearhead.decoding.attention import Panel
    from clearhead.decoding.load import LoadedModel

# which characters of "2029-03-01" belong to which part
WRITTEN = {"year": range(4), "month": range(5, 7), "day": range(8, 10)}
SHOWN = 12  # examples
LOOKED_AT = 200  # unseen dates over which attention is averaged


class Reader(NamedTuple):
    """The head that, while it writes a part of a date, looks most at the characters this part comes from."""

    layer: int  # both from 0
    head: int
    share: float  # of its attention that these characters get, on average over unseen dates


def demo(
    run: Annotated[Path, typer.Option(metavar="DIR", help="The run folder; a run already in it goes on.")] = Path(
        "runs/demo"
    ),
    set_: RecipeSettings = None,
) -> None:
    """Train the recipe `dates` (about two minutes), translate unseen dates, draw the cross-attention.

    \b
    Examples:
      clearhead demo
      clearhead demo --run runs/short --set training.steps=100   # learns less
    """
    from clearhead.cli.commands.train import show_samples
    from clearhead.data.dates import Dates
    from clearhead.decoding.load import load
    from clearhead.training.config import load_recipe
    from clearhead.training.plot import plot
    from clearhead.training.session import train

    recipe = load_recipe("dates", set_ or ())
    if recipe.data.task != "dates":
        raise InputError(f"the demo reads dates: data.task must stay 'dates', not {recipe.data.task!r}")
    refuse_a_file(run, "--run")
    with left_as_it_was(run):
        outcome = train(recipe, run, attach=show_samples)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)
    model, data = load(run), outcome.splits.test
    assert isinstance(data, Dates)
    examples = data.examples()
    answers = [answer.text for answer in model.translate([example.source for example in examples], beam_size=1)]
    typer.echo("\nDates the model has never seen:")
    for example, answer in list(zip(examples, answers, strict=True))[:SHOWN]:
        note = "" if answer == example.target else f"   (it is {example.target})"
        typer.echo(f"  {answer}  ←  {example.source}{note}")
    right = [answer == example.target for answer, example in zip(answers, examples, strict=True)]
    typer.echo(f"\n{sum(right):,} of {len(right):,} right ({sum(right) / len(right):.1%}).")

    readers, count = best_heads(model, data), min(LOOKED_AT, len(data))
    typer.echo("\nWhile it writes each part, where does it look? The head that looks most at the right characters,")
    typer.echo(f"and how much of its attention they get, on average over {count} unseen dates:")
    for part, reader in readers.items():
        typer.echo(f"  {part:<6} layer {reader.layer + 1}, head {reader.head + 1}: {reader.share:.0%}")
    plot(outcome.run)
    draw_readers(model, data, chosen(examples, right), readers, run / "plots" / "where-it-looks.png", count)
    typer.echo(next_steps(run))


def best_heads(model: "LoadedModel", data: "Dates") -> dict[str, Reader]:
    """The reader of each part, found on the first dates of the data."""
    import torch

    from clearhead.model import EncoderDecoder, trace

    reader = model.model
    assert isinstance(reader, EncoderDecoder)
    indices = range(min(LOOKED_AT, len(data)))
    batch = data.collate(indices).to(model.device)
    with torch.inference_mode(), trace(reader) as recorded:
        reader.hidden(**batch.inputs)
    weights = torch.stack(
        [tensor for path, tensor in recorded.named("weights").items() if "cross_attention" in path]
    )  # (layers, B, H, S, T)
    shares = {
        part: torch.stack(
            [share_of(weights[:, index], rows, range(*data.parts(index)[part])) for index in indices]
        ).mean(0)  # (layers, H)
        for part, rows in WRITTEN.items()
    }
    found = {}
    for part in WRITTEN:
        layer, head = divmod(int(shares[part].argmax()), shares[part].size(1))
        found[part] = Reader(layer, head, float(shares[part].max()))
    return found


def share_of(weights: "Tensor", rows: range, columns: range) -> "Tensor":
    """How much of the attention (…, S, T) of these rows goes to these columns; query i writes character i."""
    return weights[..., rows.start : rows.stop, columns.start : columns.stop].sum(-1).mean(-1)


def chosen(examples: list, right: list[bool]) -> int:
    """The date to draw: the first that was read right and that the fonts here can draw, or else the first."""
    from clearhead.decoding.pictures import drawable

    good = (i for i, example in enumerate(examples) if right[i] and drawable(example.source) == example.source)
    return next(good, 0)


def draw_readers(
    model: "LoadedModel", data: "Dates", index: int, readers: dict[str, Reader], path: Path, count: int
) -> None:
    """Every head of the cross-attention while the model reads one date; the readers with what they read framed."""
    from clearhead.decoding.answer import answer
    from clearhead.decoding.attention import CROSS, attention_panels
    from clearhead.decoding.pictures import draw, title_of

    text = data.examples()[index].source
    panels = [panel for panel in attention_panels(model, text) if panel.kind == CROSS]
    note = (
        "Each row is a character being written, each column one of the text. Framed: where a part of the date stands, "
        "in the head that looks there most; above it, how much of its attention these cells get in this date, and on "
        f"average over {count} unseen dates."
    )
    path.parent.mkdir(exist_ok=True)
    draw(marked(panels, readers, data.parts(index)), path, title_of(text, answer(model, text)), note)


def marked(panels: "list[Panel]", readers: dict[str, Reader], parts: dict[str, tuple[int, int]]) -> "list[Panel]":
    """The panels, one a layer, in which each head that reads something is marked with all that it reads."""
    from clearhead.decoding.attention import Mark

    result = []
    for layer, panel in enumerate(panels):
        marks = []
        for part, rows in WRITTEN.items():
            reader, columns = readers[part], range(*parts[part])
            if reader.layer == layer and rows.stop < len(panel.rows):  # else too little was written to be a date
                here = float(share_of(panel.weights[reader.head], rows, columns))
                line = f"reads the {part}: {here:.0%} here, {reader.share:.0%} on average"
                marks.append(Mark(reader.head, rows, columns, line))
        result.append(replace(panel, marks=tuple(marks)))
    return result


def next_steps(run: Path) -> str:
    """Where the pictures are, and commands that run as they are printed."""
    program, name = invocation(), shlex.quote(str(run))
    activate = activation()
    once = f"\nOr first: {activate}   and then `clearhead …` is enough.\n" if activate else ""
    return f"""
Pictures:
  {run / "plots" / "where-it-looks.png"}
  {run / "plots" / "training.png"}

Try next:
  echo "Samstag, 3. März 2029" | {program} translate {name}
  {program} explore {name}   # look inside, on a page in the browser
  {program} attention {name} "3 mars 2029"   # every head, as a picture
  {program} evaluate {name}
  {program} shapes {name}
  {program} train copy   # another recipe, in half a minute
{once}"""
