"""Sockets and signals: uvicorn around the application, clients that are too slow cut off, and a graceful end.

SIGTERM (or Ctrl-C): no new connections, what is being decoded is finished, what waits is refused with 503, then the
process ends with status 0 (130 after Ctrl-C). A second Ctrl-C ends it at once.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from clearhead.errors import InputError
from clearhead.explore.guard import hosts, spelled
from clearhead.explore.server import listen
from clearhead.serve import answers
from clearhead.serve.app import App
from clearhead.serve.gate import Answer

MOST_CONNECTIONS = 1000
SLOW_SECONDS = 20  # without a whole request, or without reading the answer
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def names(address: str, port: int, extra: list[str]) -> frozenset[str]:
    """What a client may call us, to the letter: with the port, or as a proxy in front passes it on."""
    if address in LOOPBACK:
        ours = set(hosts(port))
    elif address in ("0.0.0.0", "::"):
        ours = set()
    else:
        ours = spelled(f"[{address}]" if ":" in address else address, port)
    return frozenset(name.lower() for name in (*ours, *extra))


def bound(address: str, port: int) -> list[socket.socket]:
    """Sockets to listen on; loopback means both of its addresses."""
    try:
        if address in LOOPBACK:
            sockets = listen(port)
            if address == "::1" and len(sockets) == 1:
                sockets[0].close()
                raise OSError("there is no such address here, or another program has the port")
            return sockets
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(place)
        except OSError:
            made.close()
            raise
        return [made]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {address}:{port}: {why}; another --port, or 0 for any") from None


def page_app(run: str, port: int, checkpoint: str, device: str, threads: int | None) -> Any:
    """The page of a run, which loads a copy of its own when somebody first asks for it."""
    made: list[Any] = []
    lock = asyncio.Lock()

    def make() -> None:
        from clearhead.explore.server import create_app
        from clearhead.explore.session import Session

        made.append(create_app(Session(run, checkpoint, device, threads), port))

    async def page(scope: Any, receive: Any, send: Any) -> None:
        async with lock:
            if not made:
                await asyncio.get_running_loop().run_in_executor(None, make)
        await made[0](scope, receive, send)

    return page


async def crowded(scope: Any, receive: Any, send: Any) -> None:
    """What a connection gets that is one too many."""
    said = answers.error(503, f"{MOST_CONNECTIONS} connections are open, and no more are taken", None)
    await Answer(send).whole(503, said, retry_after="5", connection="close")


def patient_protocol() -> Any:
    """uvicorn's protocol, with an end to its patience: a connection that for too long sends no whole request, or does
    not read what it is sent, is closed; so is one too many."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Patient(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > MOST_CONNECTIONS:
                self.app: Any = crowded
            self.seen: Any = None
            self.since = time.monotonic()
            self.look = self.loop.call_later(SLOW_SECONDS / 4, self.look_again)

        def look_again(self) -> None:
            resting = self.cycle is None or self.cycle.response_complete
            state = (self.cycle, resting, self.flow.write_paused)
            if state != self.seen or not (resting or self.flow.write_paused):
                self.seen, self.since = state, time.monotonic()
            elif time.monotonic() - self.since > SLOW_SECONDS:
                self.transport.abort()
                return
            self.look = self.loop.call_later(SLOW_SECONDS / 4, self.look_again)

        def connection_lost(self, exc: Exception | None) -> None:
            self.look.cancel()
            super().connection_lost(exc)

    return Patient


def serve(app: App, sockets: list[socket.socket], ready: Callable[[], None] = lambda: None) -> None:
    """Answer until told to end."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

        def handle_exit(self, sig: int, frame: Any) -> None:
            if self.should_exit and sig == signal.SIGINT:
                os._exit(130)  # at once; there is nothing that could be left half written
            app.worker.drain()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        http=patient_protocol(),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(app.settings.deadline) + 10,
    )
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # uvicorn raises it again when it has finished
    Server(config).run(sockets=sockets)
