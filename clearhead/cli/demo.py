"""`clearhead demo`: train the default recipe, then show what it learned and where it looks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from clearhead.data.dates import Dates
    from clearhead.decoding.load import LoadedModel

# which characters of "2029-03-01" belong to which part
WRITTEN = {"year": range(4), "month": range(5, 7), "day": range(8, 10)}
SHOWN = 12  # examples
LOOKED_AT = 200  # unseen dates over which attention is averaged


def demo(
    run: Annotated[Path, typer.Option(help="The run folder; a run already in it goes on.")] = Path("runs/demo"),
) -> None:
    """Train the recipe `dates` (about two minutes), translate unseen dates, draw the cross-attention.

    Example: clearhead demo
    """
    from clearhead.cli.train import show_samples
    from clearhead.decoding.attention import CROSS, attention_panels
    from clearhead.decoding.load import load
    from clearhead.decoding.pictures import draw
    from clearhead.training.config import load_recipe
    from clearhead.training.plot import plot
    from clearhead.training.session import train

    outcome = train(load_recipe("dates"), run, attach=show_samples)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)
    model, data = load(run), outcome.splits.test
    examples = data.examples()  # type: ignore[union-attr]
    answers = [answer.text for answer in model.translate([example.source for example in examples], beam_size=1)]
    right = [answer == example.target for answer, example in zip(answers, examples, strict=True)]
    typer.echo("\nDates the model has never seen:")
    for example, answer in list(zip(examples, answers, strict=True))[:SHOWN]:
        note = "" if answer == example.target else f"   (it is {example.target})"
        typer.echo(f"  {answer}  ←  {example.source}{note}")
    typer.echo(f"\n{sum(right):,} of {len(right):,} right ({sum(right) / len(right):.1%}).")

    heads = best_heads(model, data)  # type: ignore[arg-type]
    typer.echo("\nWhile it writes each part, where does it look? The head that looks most at the right characters:")
    for part, (layer, head, share) in heads.items():
        typer.echo(f"  {part:<6} layer {layer + 1}, head {head + 1}: {share:.0%} of its attention")
    text = examples[0].source
    panels = [panel for panel in attention_panels(model, text) if panel.kind == CROSS]
    picture = run / "plots" / "attention.png"
    plot(outcome.run)
    draw(chosen_first(panels, heads), picture, text)
    name = str(run)
    typer.echo(f"""
Pictures:  {picture}   {run / "plots" / "training.png"}

Try next:
  echo "Samstag, 3. März 2029" | clearhead translate {name}
  clearhead attention {name} "3 mars 2029" -o heads.html
  clearhead evaluate {name}
  clearhead train copy --set training.steps=300
  clearhead shapes {name}
""")


def best_heads(model: "LoadedModel", data: "Dates") -> dict[str, tuple[int, int, float]]:
    """For each part of a date the layer and head that, while writing it, look most at the characters it comes from,
    and the share of their attention that these get, on average over unseen dates."""
    import torch

    from clearhead.model import EncoderDecoder, trace

    shares: dict[str, torch.Tensor] = {}
    reader = model.model
    assert isinstance(reader, EncoderDecoder)
    count = min(LOOKED_AT, len(data))
    for index in range(count):
        inputs = data.collate([index]).inputs
        with torch.inference_mode(), trace(reader) as recorded:
            reader.hidden(**inputs)
        weights = torch.cat(
            [tensor for path, tensor in recorded.named("weights").items() if "cross_attention" in path]
        )  # (layers, H, S, T)
        for part, (start, end) in data.parts(index).items():
            rows = weights[:, :, list(WRITTEN[part])]  # the query that writes character i stands at i
            share = rows[..., start:end].sum(-1).mean(-1)  # (layers, H)
            shares[part] = shares.get(part, torch.zeros_like(share)) + share / count
    found = {}
    for part in WRITTEN:
        best = int(shares[part].argmax())
        heads = shares[part].size(1)
        found[part] = (best // heads, best % heads, float(shares[part].max()))
    return found


def chosen_first(panels: list, heads: dict[str, tuple[int, int, float]]) -> list:
    """The panels of the picture: first the heads that read the year, the month and the day, then every head."""
    from dataclasses import replace

    first = []
    for part, (layer, head, share) in heads.items():
        panel = panels[layer]
        label = f"decoder cross-attention, the head that reads the {part} ({share:.0%} of its attention)"
        first.append(replace(panel, kind=label, weights=panel.weights[head : head + 1], first_head=head + 1))
    return [*first, *panels]
