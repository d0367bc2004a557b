"""A real Chromium for the tests of the page, through Playwright. No browser: the tests skip, and say so; where
CLEARHEAD_REQUIRE_BROWSER is set, as in .ci/run, they fail instead."""

import json
import os
import shutil
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
PAGE = files("clearhead.explore") / "page"
HERE = "http://page.test/"  # a name that no network knows: every request is answered by the test


def program() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def open_chromium() -> Iterator[Any]:
    """The browser, or a reason why there is none."""
    missing = "no Chromium on this machine: apt-get install chromium fonts-noto-core"
    found = program()
    if found is None:
        if os.environ.get("CLEARHEAD_REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


def answer_from_memory(page: Any, carried: dict[str, Any], tensors: str, script: str) -> list[str]:
    """Every request of the page gets a file of the package, or this document; returns what was asked for elsewhere."""
    strange: list[str] = []
    data = json.dumps(carried, ensure_ascii=False).replace("<", "\\u003c")
    document = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>test</title>'
        f'<script type="application/json" id="clearhead-carried">{data}</script>'
        f'<script type="text/plain" id="clearhead-tensors">{tensors}</script><script type="module">{script}</script>'
    )

    def answer(route: Any) -> None:
        url = route.request.url
        if url == HERE:
            route.fulfill(body=document, content_type="text/html; charset=utf-8")
        elif url.startswith(HERE) and (PAGE / url.removeprefix(HERE)).is_file():
            kind = "text/javascript" if url.endswith(".js") else "text/css"
            route.fulfill(body=(PAGE / url.removeprefix(HERE)).read_bytes(), content_type=kind)
        else:
            if not url.endswith("favicon.ico"):
                strange.append(url)
            route.abort()

    page.route("**/*", answer)
    return strange
