"""`clearhead attention`: a picture of every head while the model reads a text."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from clearhead.cli.options import Checkpoint, Force, RunFolder, refuse_to_replace

MOST = 1000  # letters; a picture of more cannot be read, and takes minutes to draw


def attention(
    run: RunFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model reads.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="x.png, x.svg, x.pdf, or x.html: the page of `explore`; RUN/plots/attention.png unless given.",
        ),
    ] = None,
    force: Force = False,
    target: Annotated[str | None, typer.Option(help="What it writes; its own translation unless given.")] = None,
    layer: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only this layer, from 1.")] = None,
    kind: Annotated[Literal["encoder", "masked", "cross"] | None, typer.Option(help="Only this kind.")] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Draw every layer and head: the encoder's self-attention, the decoder's masked self-attention, cross-attention.

    Rows look at columns. The decoder's rows are named by the token being predicted. Masked cells are hatched; above
    each head stands its entropy, averaged over rows: 0 bits if it looks at one token only. The title says what the
    model answered. As x.html it is the page of `clearhead explore`, in one file, opened at the heads.

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

    if not text.strip():
        raise InputError("TEXT is empty: there is nothing to look at")
    for name, given in (("TEXT", text), ("--target", target or "")):
        if len(given) > MOST:
            raise InputError(f"{name} has {len(given):,} letters: a picture has room for {MOST:,}")
    # letters that the shell passed on as bytes, because they are no UTF-8, have no place in a picture
    text = text.encode("utf-8", "replace").decode()
    target = None if target is None else target.encode("utf-8", "replace").decode()
    kinds = {"encoder": ENCODER, "masked": MASKED, "cross": CROSS}
    if output is not None:
        refuse_to_replace(output, force)
    if output is not None and output.suffix.lower() == ".html":
        if target is not None:
            raise InputError("--target is for pictures: the page writes its own answer, and takes others there")
        write_page(run, text, output, layer, kind, checkpoint)
        return
    model = load(run, checkpoint)
    panels = [
        panel
        for panel in attention_panels(model, text, target)
        if (layer is None or panel.layer == layer) and (kind is None or panel.kind == kinds[kind])
    ]
    if not panels:
        asked = [f"--layer {layer}"] * (layer is not None) + [f"--kind {kind}"] * (kind is not None)
        raise InputError(f"{run} has no attention of {' and '.join(asked)}")
    if output is None:
        output = run / "plots" / "attention.png"
        output.parent.mkdir(exist_ok=True)
    draw(panels, output, title_of(text, answer(model, text) if target is None else target, given=target is not None))
    typer.echo(f"wrote {output}", err=True)


def write_page(run: Path, text: str, output: Path, layer: int | None, kind: str | None, checkpoint: str) -> None:
    """The page of `clearhead explore` in one file, opened at the heads of a layer and kind."""
    from clearhead.errors import InputError
    from clearhead.explore.interventions import places
    from clearhead.explore.session import Session
    from clearhead.explore.single_file import page_of

    session = Session(str(run), checkpoint)
    wanted = {"encoder": ("encoder", "self"), "masked": ("decoder", "self"), "cross": ("decoder", "cross")}
    found = [
        place
        for place in places(session.loaded().model.config)
        if (layer is None or place.layer + 1 == layer) and (kind is None or (place.stack, place.kind) == wanted[kind])
    ]
    if not found:
        asked = [f"--layer {layer}"] * (layer is not None) + [f"--kind {kind}"] * (kind is not None)
        raise InputError(f"{run} has no attention of {' and '.join(asked)}")
    page_of(str(run), text, checkpoint, session, begin=f"view=look&at={found[-1]}.1").save(output)
    typer.echo(f"wrote {output}", err=True)
