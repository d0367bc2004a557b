"""`clearhead attention`: a picture of every head while the model reads a text."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import Checkpoint, Force, RunFolder, refuse_to_replace


def attention(
    run: RunFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="F",
            help="x.png, x.svg, x.pdf, or x.html to point at cells; RUN/plots/attention.png unless given.",
        ),
    ] = None,
    force: Force = False,
    target: Annotated[str | None, typer.Option(help="What it writes; its own translation unless given.")] = None,
    layer: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only this layer, from 1.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only encoder, masked or cross.")] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Draw every layer and head: the encoder's self-attention, the decoder's masked self-attention, cross-attention.

    Rows look at columns. The decoder's rows are named by the token being predicted. Masked cells are hatched; above
    each head stands its entropy, averaged over rows: 0 bits if it looks at one token only. The title says what the
    model answered.

    \b
    Examples:
      clearhead attention runs/demo "Samstag, 3. März 2029"
      clearhead attention runs/demo "3 mars 2029" --kind cross -o cross.svg
      clearhead attention runs/shakespeare "To be, or not" -o heads.html
    """
    from clearhead.decoding.answer import answer
    from clearhead.decoding.attention import CROSS, ENCODER, MASKED, attention_panels
    from clearhead.decoding.load import load
    from clearhead.decoding.pictures import draw, title_of
    from clearhead.errors import InputError

    kinds = {"encoder": ENCODER, "masked": MASKED, "cross": CROSS}
    if kind is not None and kind not in kinds:
        raise InputError(f"--kind {kind!r} is not one of {', '.join(kinds)}")
    if output is not None:
        refuse_to_replace(output, force)
    model = load(run, checkpoint)
    panels = [
        panel
        for panel in attention_panels(model, text, target)
        if (layer is None or panel.layer == layer) and (kind is None or panel.kind == kinds[kind])
    ]
    if not panels:
        raise InputError(f"{run} has no such attention: layer {layer or 'any'}, kind {kind or 'any'}")
    if output is None:
        output = run / "plots" / "attention.png"
        output.parent.mkdir(exist_ok=True)
    draw(panels, output, title_of(text, answer(model, text) if target is None else target, given=target is not None))
    typer.echo(f"wrote {output}", err=True)
