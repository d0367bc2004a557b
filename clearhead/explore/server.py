"""The page's server: Starlette on loopback, one session, a handful of endpoints.

    GET  /                  the page, with this process's token in it        GET /page/NAME    its script and its styles
    GET  /api/model         the run and its model                            GET /api/training?after=N   metrics
    POST /api/pass          a text through the model                         POST /api/tensors           numbers, binary
    POST /api/worth         what each head and layer is worth                POST /api/guesses           layer by layer

Answers are JSON but for tensors. A mistake in a request is {"error": one line} with status 400; what a guard refuses
has its own status (guard.py); nothing of a traceback ever leaves the terminal.
"""

import json
import secrets
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

from clearhead.errors import InputError
from clearhead.explore.bundle import PAGE, bundle
from clearhead.explore.guard import HEADERS, MOST_BYTES, Refused, check, parse
from clearhead.explore.history import finite
from clearhead.explore.requests import OfPass, PassRequest, TensorRequest
from clearhead.explore.session import Session
from clearhead.settings import from_dict

FILES: dict[str, tuple[str, Callable[[], str]]] = {  # all that is served besides the page itself
    "main.js": ("text/javascript", cache(bundle)),
    "style.css": ("text/css", lambda: (PAGE / "style.css").read_text(encoding="utf-8")),
}
NEEDED = "clearhead explore needs two more packages: pip install 'clearhead[serve]' (starlette and uvicorn)"
Request: TypeAlias = Any  # Starlette's; it is an extra, and imported only where it is used
Response: TypeAlias = Any
Handler = Callable[[Request], Awaitable[Response]]


def require_packages() -> None:
    """One line about what to install, before anything is done."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise InputError(NEEDED) from None


def create_app(session: Session, port: int, token: str | None = None) -> Any:
    """The application for a port; the token is a new one unless given."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    token = token or secrets.token_urlsafe(24)
    app = Starlette(
        routes=[
            Route("/", page(token)),
            Route("/page/{name}", asset),
            Route("/api/model", get(lambda request: session.model())),
            Route("/api/training", get(lambda request: session.training(after(request)))),
            Route("/api/pass", post(lambda asked: session.read(from_dict(PassRequest, asked))), methods=["POST"]),
            Route("/api/worth", post(lambda asked: session.worth(from_dict(OfPass, asked))), methods=["POST"]),
            Route("/api/guesses", post(lambda asked: session.guesses(from_dict(OfPass, asked))), methods=["POST"]),
            Route(
                "/api/tensors", post(lambda asked: session.tensors(from_dict(TensorRequest, asked))), methods=["POST"]
            ),
        ],
        exception_handlers={404: not_found, 405: not_found},
    )
    app.router.redirect_slashes = False  # a path is right or it is not there
    app.add_middleware(Guard, port=port, token=token)
    return app


class Guard:
    """Around everything: refuses, bounds the body, adds the headers, and keeps failures in the terminal."""

    def __init__(self, app: Any, port: int, token: str) -> None:
        self.app, self.port, self.token = app, port, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def with_headers(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [
                    *((key, value) for key, value in message["headers"] if key.decode() not in HEADERS),
                    *((key.encode(), value.encode()) for key, value in HEADERS.items()),
                ]
            await send(message)

        try:
            check(scope["method"], scope["headers"], self.port, self.token)
            body = await read_body(receive) if scope["method"] == "POST" else b""
            await self.app(scope, again(body), with_headers)
        except Refused as refused:
            await error(refused.status, refused.why)(scope, receive, with_headers)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            if not started:
                await error(500, "something went wrong here; the terminal says what")(scope, receive, with_headers)


async def read_body(receive: Any) -> bytes:
    """The whole body, as far as it is allowed to go."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request ended before its body did")
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            raise Refused(413, f"at most {MOST_BYTES:,} bytes are read")
        if not message.get("more_body"):
            return body


def again(body: bytes) -> Any:
    """A body that was read already, for the application to receive."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def error(status: int, why: str) -> Response:
    return encoded({"error": why}, status)


def encoded(content: Any, status: int = 200) -> Response:
    from starlette.responses import Response as Made

    text = json.dumps(finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Made(text.encode("utf-8", "replace"), status, media_type="application/json")


async def not_found(request: Request, failure: Exception) -> Response:
    return error(getattr(failure, "status_code", 404), "there is nothing here")


def page(token: str) -> Handler:
    """index.html with the token in it."""

    async def handler(request: Request) -> Response:
        from starlette.responses import Response as Made

        text = (PAGE / "index.html").read_text(encoding="utf-8")
        return Made(text.replace("CLEARHEAD_TOKEN", token).encode(), media_type="text/html; charset=utf-8")

    return handler


async def asset(request: Request) -> Response:
    """One of the page's two files; nothing else of the file system has a name here."""
    from starlette.responses import Response as Made

    found = FILES.get(request.path_params["name"])
    if found is None:
        return error(404, "there is nothing here")
    kind, text = found
    return Made(text().encode(), media_type=f"{kind}; charset=utf-8")


def after(request: Request) -> int:
    given = request.query_params.get("after", "0")
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise InputError("after must be a step, a whole number")
    return int(given)


def get(answer: Callable[[Request], Any]) -> Handler:
    async def handler(request: Request) -> Response:
        return await computed(lambda: answer(request))

    return handler


def post(answer: Callable[[dict[str, Any]], Any]) -> Handler:
    async def handler(request: Request) -> Response:
        asked = parse(await request.body())
        return await computed(lambda: answer(asked))

    return handler


async def computed(work: Callable[[], Any]) -> Response:
    """What the session answers, worked out in another thread; a mistake in the request is one line."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response as Made

    try:
        made = await run_in_threadpool(work)
    except InputError as mistake:
        return error(400, str(mistake))
    if isinstance(made, bytes):
        return Made(made, media_type="application/octet-stream")
    return encoded(made)


def listen(port: int) -> list[socket.socket]:
    """Sockets on the loopback addresses of this machine, 127.0.0.1 and, where there is one, ::1. Port 0: any free."""
    first = _bound(socket.AF_INET, "127.0.0.1", port)
    taken = [first]
    with suppress(OSError):  # a machine without IPv6, or another program there: 127.0.0.1 is enough
        taken.append(_bound(socket.AF_INET6, "::1", first.getsockname()[1]))
    return taken


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    # by its number, or asyncio leaves Nagle's algorithm on: 40 ms for each answer to a kept connection
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def serve(session: Session, sockets: list[socket.socket], ready: Callable[[], None] = lambda: None) -> None:
    """Answer until interrupted."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    app = create_app(session, sockets[0].getsockname()[1])
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, date_header=False, ws="none"
    )
    Server(config).run(sockets=sockets)
