"""In a real browser: the page under the same server, and what pages of other origins get."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.explore.browser import open_chromium
from tests.serve.processes import serving

# with headers as the official client for JavaScript sends them
ASK = """async (url) => {
    const headers = {"content-type": "application/json", authorization: "Bearer none", "x-stainless-lang": "js"};
    const how = {method: "POST", headers, body: '{"text": "the cat"}'};
    try { return (await (await fetch(url, how)).json()).results[0].translations[0].text } catch (e) { return String(e) }
}"""
FORM = """(url) => new Promise(done => {
    const how = {method: "POST", mode: "no-cors", headers: {"content-type": "text/plain"}, body: '{"text": "a form"}'};
    fetch(url, how).then(() => done("sent"), () => done("blocked"));
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from open_chromium()


@contextmanager
def site() -> Iterator[str]:
    """Somebody else's page: the same machine, another port, and so another origin."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>another site</title>")

        def log_message(self, *words: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.long
def test_the_page_and_other_sites(browser: Any, runs: list[Path]) -> None:
    with site() as good, site() as evil, serving(runs[:2], "--cors", good) as made:
        wanted = made.post("/translate", {"text": "the cat"}).json()["results"][0]["translations"][0]["text"]
        page = browser.new_page()
        mistakes: list[str] = []
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.goto(f"{made.url}/#text=the+cat")
        page.wait_for_selector("body[data-idle] #sentence :text('cat')", timeout=60_000)
        assert page.evaluate(ASK, f"{made.url}/translate") == wanted  # its own origin may ask
        assert mistakes == []
        page.goto(good)
        assert page.evaluate(ASK, f"{made.url}/translate") == wanted
        page.goto(evil)
        assert "Failed to fetch" in page.evaluate(ASK, f"{made.url}/translate")
        before = made.said().count("POST /translate 200")
        page.evaluate(FORM, f"{made.url}/translate")  # reaches the server, which refuses it
        assert made.said().count("POST /translate 403") >= 1
        assert made.said().count("POST /translate 200") == before
        page.close()
