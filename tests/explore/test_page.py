"""The page in a real browser, served: every view is used by clicking and typing, and its numbers are Python's."""

import math
import re
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn

from clearhead.explore.requests import Edits, OfPass, PassRequest
from clearhead.explore.server import create_app, listen
from clearhead.explore.session import Session
from tests.explore.runs import KINDS, small_session

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


@pytest.fixture(scope="module")
def opened(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    made = Opened(small_session(tmp_path_factory.mktemp("page") / "run", "encoder-decoder"), chromium)
    yield made
    made.close()


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("+", ""))


def test_a_text_is_typed_and_a_token_forced(opened: Opened) -> None:
    page = opened.page(view="write")
    page.fill("#q", "a dog")
    page.click("button.main")
    settled(page)
    base = opened.session.read(PassRequest("a dog"))
    shown = page.locator(".toks").nth(1).locator(".tok").all_inner_texts()
    assert shown == [token["text"] for token in base["answer"]]
    bars = page.locator("#bars .bar:not(.rest)")
    for place, one in enumerate(base["writing"]["top"][0][:5]):
        assert float(bars.nth(place).locator("[data-p]").get_attribute("data-p")) == pytest.approx(one["p"], abs=1e-6)
    bars.nth(1).click()
    settled(page)
    other = base["writing"]["top"][0][1]["id"]
    forced = opened.session.read(PassRequest("a dog", edits=Edits(force=((0, other),))))
    told = page.locator("#writing").inner_text()
    assert told.endswith(f"→ {forced['writing']['log_prob']:.2f}".replace("-", "−"))
    assert f"force=0%3A{other}" in page.url
    page.click("#undo")
    settled(page)
    assert page.locator("#edited").count() == 0
    finish(page)


def test_a_head_is_opened_and_silenced(opened: Opened) -> None:
    page = opened.page(view="look", at="decoder.2.cross.1", step=1, src=2)
    page.wait_for_selector("#worth:has-text('nats')")
    settled(page)
    made = opened.session.read(PassRequest(TEXT))
    worth = {one["at"]: one["worth"] for one in opened.session.worth(OfPass(made["id"]))["heads"]}
    thumbs = page.locator(".thumb")
    assert thumbs.count() == len(worth)
    first = page.locator(".group").first.locator(".thumb")
    amounts = [float(first.nth(i).get_attribute("data-worth")) for i in range(first.count())]
    assert amounts == sorted(amounts, reverse=True)  # by worth unless another order is asked for
    name = first.first.get_attribute("data-key")
    assert amounts[0] == pytest.approx(worth[name], abs=1e-4)
    first.first.click()
    settled(page)
    weights = opened.session.passes[made["id"]].taken
    at, head = name.rsplit(".", 1)
    path = next(one["path"] for one in made["attentions"] if one["at"] == at)
    value = float(weights[f"{path}.weights"][0, int(head) - 1, 1, 2])
    assert page.locator("#chosen").inner_text().endswith(f"= {value:.4f}")
    page.locator("#big").focus()
    page.keyboard.press("ArrowLeft")
    settled(page)
    assert "src=1" in page.url
    page.click("#silence")
    settled(page)
    after = opened.session.read(PassRequest(TEXT, edits=Edits(off=(name,)), answer=tuple(made["scoring"]["ids"])))
    changes = [b - a for a, b in zip(made["scoring"]["log_probs"], after["scoring"]["log_probs"], strict=True)]
    shown = [number(text) for text in page.locator("#deltas span").all_inner_texts()]
    assert shown == pytest.approx(changes, abs=0.0051)
    assert number(page.locator("#scoring").inner_text().rsplit(" ", 1)[1]) == pytest.approx(sum(changes), abs=0.0051)
    page.keyboard.press("Escape")
    settled(page)
    assert page.locator("#edited").count() == 0
    finish(page)


def evaluate(text: str) -> float:
    """What a reader with a calculator gets for an expression as it is shown."""
    text = re.sub(r"√(\d+)", r"math.sqrt(\1)", text.replace("−", "-").replace("×", "*").replace("e^(", "math.exp("))
    assert re.fullmatch(r"[\d.\s+*/()-]|(?:[\d.\s+*/()-]|math\.(?:sqrt|exp))+", text), text
    return float(eval(text, {"math": math}))


def same_digits(expression: str, result: str) -> None:
    digits = len(result.partition(".")[2])
    assert abs(evaluate(expression) - number(result)) <= 0.5001 * 10**-digits, f"{expression} = {result}"


@pytest.mark.parametrize("at", ["decoder.2.cross.1", "decoder.1.self.2", "encoder.1.self.1"])
def test_the_numbers_of_a_cell_give_what_is_shown(opened: Opened, at: str) -> None:
    page = opened.page(view="cell", at=at, step=2, src=1, back=1, to=2)
    equations = page.locator("[data-eq]").all_inner_texts()
    assert len(equations) >= 4
    for text in equations:
        *parts, result = text.split(" = ")
        for part in parts:
            same_digits(part, result)
    tables = page.evaluate(
        "[...document.querySelectorAll('table.adding')].map(t => [...t.rows].map(r => "
        "[...r.querySelectorAll('td:not(.soft)')].map(c => c.textContent)))"
    )
    assert len(tables) >= 4
    for *addends, total in tables:
        for column, result in enumerate(total):
            same_digits(" + ".join(f"({row[column]})" for row in addends), result)
    products = page.evaluate(
        "[...document.querySelectorAll('table.products')].map(t => [...t.rows].map(r => "
        "[...r.querySelectorAll('td')].map(c => c.textContent)))"
    )
    for left, right, made in products:
        for a, b, result in zip(left, right, made, strict=True):
            same_digits(f"({a}) * ({b})", result)
    summands = page.locator("table.products[data-of='q k'] tr.sum td").all_text_contents()
    assert sum(map(number, summands)) == pytest.approx(number(page.locator("#dot").inner_text()), abs=5.1e-5)
    made = opened.session.read(PassRequest(TEXT))
    path = next(one["path"] for one in made["attentions"] if at.startswith(one["at"]))
    row, column = {"decoder.2.cross.1": (2, 1), "decoder.1.self.2": (2, 1), "encoder.1.self.1": (1, 2)}[at]
    taken, head = opened.session.passes[made["id"]].taken, int(at[-1]) - 1
    weight = float(taken[f"{path}.weights"][0, head, row, column])
    score = float(taken[f"{path}.scores"][0, head, row, column])
    assert number(page.locator("#score").inner_text()) == pytest.approx(score, abs=6e-4)
    assert number(page.locator("#share").inner_text()) == pytest.approx(weight, abs=5.1e-4)
    assert "clearhead/model/attention.py:" in page.locator(".st .code").nth(2).inner_text()
    finish(page)


def test_switches_are_thrown_and_combined(opened: Opened) -> None:
    page = opened.page(view="switch")
    base = opened.session.read(PassRequest(TEXT))
    ids = tuple(base["scoring"]["ids"])
    page.click("[data-switch=mask] .toggle")
    settled(page)
    off = opened.session.read(PassRequest(TEXT, edits=Edits(sw=("mask",)), answer=ids))
    row = page.locator("[data-switch=mask]").inner_text()
    wanted = f"{base['scoring']['log_prob']:.2f} → {off['scoring']['log_prob']:.2f}".replace("-", "−")
    assert wanted in row
    assert "causal-mask" in row
    page.click("[data-switch=scale] .toggle")
    settled(page)
    both = opened.session.read(PassRequest(TEXT, edits=Edits(sw=("mask", "scale")), answer=ids))
    change = both["scoring"]["log_prob"] - base["scoring"]["log_prob"]
    assert number(page.locator("#scoring").inner_text().rsplit(" ", 1)[1]) == pytest.approx(change, abs=0.0051)
    page.click("[data-switch=mask] .toggle")
    settled(page)
    assert "sw=scale" in page.url
    assert "sw=mask" not in page.url
    finish(page)


def test_the_tour_leads_through_the_views(opened: Opened) -> None:
    page = opened.page(view="write")
    page.click("#tourButton")
    seen = []
    for place in range(1, 11):
        settled(page)
        assert page.locator(".tour .label").inner_text().lower() == f"tour, {place} of 10"
        assert page.locator(".lit").count() == 1
        seen.append(page.evaluate("document.body.dataset.idle"))
        page.click("#next")
    settled(page)
    assert page.locator(".tour").count() == 0
    assert set(seen) == {"write", "look", "cell", "switch"}
    finish(page)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "encoder-decoder"])
def test_other_kinds_of_model_are_drawn(kind: str, chromium: Any, tmp_path: Any) -> None:
    made = Opened(small_session(tmp_path / "run", kind), chromium)
    try:
        page = made.page(view="write")
        for key in "1234":
            page.keyboard.press(key)
            settled(page)
            assert page.locator("#view h2").count() == 1
            assert page.locator("#problem").inner_text() == ""
        finish(page)
    finally:
        made.close()


def test_an_address_that_fits_nothing_says_so(opened: Opened) -> None:
    page = opened.page(view="look", at="decoder.9.cross.1", off="decoder.1.self.77", step=500)
    assert "there is no attention decoder.9.cross" in page.locator("#problem").inner_text()
    assert "there is no head decoder.1.self.77" in page.locator("#problem").inner_text()
    finish(page)
