"""`clearhead serve`: trained models behind an API that existing clients speak."""

import re
import time
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli import completion
from clearhead.cli.options import Checkpoint, Device, Threads, finite
from clearhead.errors import InputError
from clearhead.reading import opened

LEAST_TOKEN = 16  # characters


def serve(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="The folders of runs.", autocompletion=completion.runs)
    ],
    address: Annotated[str, typer.Option(metavar="ADDRESS", help="Any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0: any that is free.")] = 8028,
    token_file: Annotated[
        Path | None, typer.Option(metavar="F", help="Its first line is the bearer token that everyone must send.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Another name, as in the Host header: name or name:port. Repeatable."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A site whose pages may ask, as https://example.org. Repeatable."),
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="The page of the first run, on loopback.")] = True,
    batch: Annotated[int, typer.Option(min=1, max=1024, metavar="N", help="Texts decoded together.")] = 32,
    queue: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Texts that may wait.")] = 256,
    deadline: Annotated[
        float, typer.Option(min=0.1, max=86_400, callback=finite, metavar="SECONDS", help="For one request.")
    ] = 60.0,
    context: Annotated[
        int, typer.Option(min=2, max=65_536, metavar="N", help="Tokens of a prompt with its continuation.")
    ] = 2048,
    log_bodies: Annotated[bool, typer.Option("--log-bodies", help="Log what is asked, too. Never otherwise.")] = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Check all of this, write the OpenAPI description, and end.")
    ] = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Serve runs: OpenAI's /v1/completions and /v1/embeddings, /translate, /predict, and the page. Ctrl-C ends it.

    Requests that wait are decoded together. Without further options only this machine can ask.

    \b
    Examples:
      clearhead serve runs/demo runs/stories
      curl --json '{"text": "3 mars 2029"}' http://127.0.0.1:8028/translate
      clearhead serve runs/stories --address 192.168.1.5 --token-file token.txt
    """
    from clearhead.explore.server import require_packages
    from clearhead.serve.app import App, Settings
    from clearhead.serve.gate import Gate
    from clearhead.serve.models import open_runs
    from clearhead.serve.server import LOOPBACK, bound, names, page_app
    from clearhead.serve.server import serve as answer

    require_packages()
    token = None if token_file is None else read_token(token_file)
    if address not in LOOPBACK and token is None:
        raise InputError(f"--address {address}: others can reach it, so a token is needed: --token-file F")
    if address in ("0.0.0.0", "::") and not allow_host:
        raise InputError(f"--address {address}: by which names is it reached? --allow-host NAME:PORT")
    for name in allow_host or ():
        if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?", name, re.ASCII):
            raise InputError(
                f"--allow-host {name!r}: a name as in the Host header is wanted, such as api.example.org:80"
            )
    for origin in cors or ():
        if not re.fullmatch(r"https?://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?", origin, re.ASCII):
            raise InputError(f"--cors {origin!r}: an origin is wanted, such as https://example.org")
    served = open_runs([str(run) for run in runs], checkpoint, device, threads, batch)
    sockets = bound(address, port)
    port = sockets[0].getsockname()[1]
    if describe:
        import json

        from clearhead.serve.description import describe as described

        for one in sockets:
            one.close()
        print(json.dumps(described(token is not None, {name: one.can for name, one in served.items()}), indent=1))
        return
    with_page = page and token is None and address in LOOPBACK

    def log(line: str) -> None:
        typer.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)

    app = App(
        served,
        Gate(names(address, port, allow_host or []), token, frozenset(origin.lower() for origin in cors or ())),
        Settings(queue, deadline, context, log, log_bodies),
        page_app(str(runs[0]), port, checkpoint, device, threads) if with_page else None,
    )

    def ready() -> None:
        host = f"[{address}]" if ":" in address else address
        typer.echo(f"serving {', '.join(served)} at http://{host}:{port}  (Ctrl-C ends it)", err=True)

    answer(app, sockets, ready)


def read_token(path: Path) -> str:
    """The first line of a file, long enough not to be guessed; it is not shown in any message."""
    try:
        with opened(path) as file:  # a pipe that nobody writes to is not waited for
            line = file.read(4096).split(b"\n")[0].strip()
    except InputError as error:
        raise InputError(f"--token-file {path}: {str(error).rpartition(': ')[2]}") from None
    if not re.fullmatch(rb"[!-~]{%d,512}" % LEAST_TOKEN, line):
        raise InputError(f"--token-file {path}: its first line must be {LEAST_TOKEN} to 512 visible ASCII characters")
    return line.decode()
