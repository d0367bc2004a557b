"""Is the page quick enough to think with? Measured in a real Chromium.

    python -m bench.explore [RUN]      a run of `clearhead train dates`; runs/demo unless given

First picture: from the page's request until everything of the first view is drawn. Frames: a text of 512 tokens, the
encoder's heads of 512 × 512 cells; the time between two frames while the pointer moves over an opened head, while
steps are taken, and from a key to the finished picture. Single file: its size, and from Read to the answer drawn.
"""

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from clearhead.errors import InputError
from clearhead.machine import machine

ROUNDS, MOVES, STEPS = 7, 120, 24
LONG = " ".join(["3 mars 2029"] * 43)[:511]  # 511 letters and the end token
DATES = ("3 mars 2029", "12 juni 1924", "27 de abril de 1992", "28. avgust 2028.", "5 May 2031")
WATCH = """
  window.idle = []; window.frames = [];
  new MutationObserver(() => { if (document.body?.dataset.idle) window.idle.push(performance.now()); })
    .observe(document, { attributes: true, subtree: true, attributeFilter: ["data-idle"] });
  const frame = now => { window.frames.push(now); requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
"""
BEGIN = "delete document.body.dataset.idle; window.idle.length = 0; window.began = performance.now()"


def main() -> None:
    from playwright.sync_api import sync_playwright

    from clearhead.explore.session import Session
    from clearhead.explore.single_file import page_of
    from tests.explore.browser import FLAGS, program

    run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    if not run.is_dir():
        raise InputError(f"there is no run {run}: train it with `clearhead train dates --run {run}`")
    print(machine())
    session = Session(str(run))
    address, stop = served(session)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=program(), args=FLAGS)
        print(f"Chromium {browser.version}, no graphics card\n")
        first_picture(browser, address)
        frames(browser, address)
        file = Path(folder) / "page.html"
        page_of(str(run), DATES[0], session=session).save(file)
        single_file(browser, file)
        browser.close()
    stop()


def served(session: Any) -> tuple[str, Callable[[], None]]:
    """The page's server in a thread: its address, and how to end it."""
    import uvicorn

    from clearhead.explore.server import create_app, listen

    sockets = listen(0)
    port = sockets[0].getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(create_app(session, port), log_level="warning"))
    thread = threading.Thread(target=lambda: server.run(sockets=sockets), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)

    def stop() -> None:
        server.should_exit = True
        thread.join(10)

    return f"http://127.0.0.1:{port}/", stop


def opened(browser: Any, address: str, **state: Any) -> Any:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(WATCH)
    page.goto(f"{address}#{urlencode(state)}" if state else address)
    drawn(page)
    return page


def drawn(page: Any) -> None:
    page.wait_for_selector("body[data-idle]", timeout=60_000)


def first_picture(browser: Any, address: str) -> None:
    times = []
    for _ in range(ROUNDS):
        page = opened(browser, address)
        times.append(page.evaluate("window.idle[0]"))
        page.close()
    told("first picture after the page's request", times, "ms")


def frames(browser: Any, address: str) -> None:
    """One text of 512 tokens, in view 2."""
    started = time.perf_counter()
    page = opened(browser, address, view="look", text=LONG, at="encoder.1.self.1", src=10, to=12)
    tokens = page.locator(".toks").first.locator(".tok").count()
    print(f"\n{tokens} tokens read, written and drawn: {time.perf_counter() - started:.1f} s")
    page.locator("#big").scroll_into_view_if_needed()
    box = page.locator("#big").bounding_box()
    side = min(box["width"], box["height"]) - 20
    between(page)
    for move in range(MOVES):
        page.mouse.move(box["x"] + 10 + side * move / MOVES, box["y"] + 10 + side * (move * 7 % MOVES) / MOVES)
    told("between two frames, pointer over the head", between(page), "ms")
    page.locator("#big").focus()
    told("from an arrow key in the head to the picture", [pressed(page, "ArrowDown") for _ in range(STEPS)], "ms")
    told("between two frames meanwhile", between(page), "ms")
    page.evaluate("document.activeElement.blur()")
    told("from → to the finished picture", [pressed(page, "ArrowRight") for _ in range(5)], "ms")
    page.close()


def between(page: Any) -> list[float]:
    """Milliseconds between the frames since it was last asked."""
    found: list[float] = page.evaluate("window.frames.splice(0)")
    return [b - a for a, b in pairwise(found)] or [0.0]


def pressed(page: Any, key: str) -> float:
    page.evaluate(BEGIN)
    page.keyboard.press(key)
    drawn(page)
    waited: float = page.evaluate("window.idle[0] - window.began")
    return waited


def single_file(browser: Any, file: Path) -> None:
    print(f"\nsingle file: {file.stat().st_size / 1e6:.2f} MB")
    times = []
    for _ in range(3):
        page = opened(browser, file.as_uri())
        for text in DATES:
            page.fill("#q", text)
            page.evaluate(BEGIN)
            page.click("button.main")
            drawn(page)
            times.append(page.evaluate("window.idle[0] - window.began"))
        page.close()
    told("from Read to the answer drawn", times, "ms")


def told(name: str, values: list[float], unit: str) -> None:
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    middle = statistics.median(values)
    print(f"{name:48} median {middle:7.1f} {unit}, 95% {high:7.1f}, most {ordered[-1]:7.1f} ({len(values)})")


if __name__ == "__main__":
    main()
