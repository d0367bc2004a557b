"""The page, served from a session and opened in a browser that may talk to nobody else."""

import threading
import time
from typing import Any
from urllib.parse import urlencode

import uvicorn

from clearhead.explore.server import create_app, listen
from clearhead.explore.session import Session

TEXT = "the cat"


class Opened:
    """A session, its server, and a browser that may talk to it and to nobody else."""

    def __init__(self, session: Session, chromium: Any) -> None:
        self.session, self.chromium = session, chromium
        sockets = listen(0)
        self.port = sockets[0].getsockname()[1]
        self.server = uvicorn.Server(uvicorn.Config(create_app(session, self.port), log_level="warning"))
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=sockets), daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 20
        while not self.server.started and time.monotonic() < deadline:
            time.sleep(0.02)

    def page(self, width: int = 1280, **state: Any) -> Any:
        page = self.chromium.new_page(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        page.said = []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda asked: None if self.ours(asked.url) else page.said.append(asked.url))
        page.goto(f"http://127.0.0.1:{self.port}/#{urlencode({'text': TEXT, **state}, doseq=True)}")
        return settled(page)

    def ours(self, url: str) -> bool:
        return url.startswith((f"http://127.0.0.1:{self.port}/", "data:", "blob:"))

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)


def settled(page: Any) -> Any:
    """The page once it has drawn what is chosen."""
    page.wait_for_selector("body[data-idle]", timeout=20_000)
    return page


def finish(page: Any) -> None:
    assert not page.said, page.said
    page.close()


def number(text: str) -> float:
    """A number as the page writes it."""
    return float(text.replace("−", "-").replace("+", "").replace(",", ""))
