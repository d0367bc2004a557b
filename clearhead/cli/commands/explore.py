"""`clearhead explore`: a page on which one sees the model think, and changes its mind."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import Checkpoint, Device, Force, RunFolder, Threads, refuse_to_replace
from clearhead.errors import InputError


def explore(
    run: RunFolder,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model reads first.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT", help="x.html: the page as one file, instead of serving it."),
    ] = None,
    force: Force = False,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0: any that is free.")] = 8029,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Open a page on one pass of a run: tokens, heads, every number, switches, layers. Ctrl-C ends it.

    The page is served on this machine only, 127.0.0.1. With -o it is written into one file that needs no server: up
    to about five million parameters it carries the weights and computes by itself, wherever it is put.

    \b
    Examples:
      clearhead explore runs/demo
      clearhead explore runs/demo --text "3 mars 2029" -o page.html
      clearhead explore runs/demo --no-browser --port 8030
    """
    from clearhead.explore.server import listen, require_packages, serve
    from clearhead.explore.session import Session

    if output is not None:
        if output.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"cannot write {output}: a page is wanted, x.html")
        refuse_to_replace(output, force)
    else:
        require_packages()
    session = Session(str(run), checkpoint, device, threads)
    if output is not None:
        from clearhead.explore.single_file import page_of

        page = page_of(str(run), text, checkpoint, session)
        page.save(output)
        said = "it computes by itself" if page.alive else "one pass, to look at: the model is too big to carry"
        typer.echo(f"wrote {output} ({len(page.html.encode()) / 1e6:.1f} MB; {said})", err=True)
        return
    try:
        sockets = listen(port)
    except OSError as error:
        raise InputError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}; another --port, or 0 for any") from None
    address = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/" + opened_at(text)

    def ready() -> None:
        typer.echo(f"{run} is open at {address}  (Ctrl-C ends it)", err=True)
        if browser:
            import webbrowser

            webbrowser.open(address)

    serve(session, sockets, ready)


def opened_at(text: str | None) -> str:
    """The state that the page begins with."""
    from urllib.parse import urlencode

    return "" if text is None else "#" + urlencode({"text": text.encode("utf-8", "replace").decode()})
