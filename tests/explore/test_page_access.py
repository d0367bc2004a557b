"""Who reaches what: axe-core finds nothing serious, the keyboard alone reaches everything, a finger does too."""

import json
import xml.etree.ElementTree
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from clearhead.explore.requests import PassRequest
from tests.explore.opened import TEXT, Opened, finish, settled
from tests.explore.runs import KINDS, small_session

VIEWS = ("write", "look", "cell", "switch", "layers")


@pytest.fixture(scope="module")
def opened(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    made = Opened(small_session(tmp_path_factory.mktemp("access") / "run", "encoder-decoder"), chromium)
    yield made
    made.close()


def serious(page: Any) -> list[str]:
    """What axe-core finds, as far as it keeps anyone from using the page."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def looked_at(here: Opened, view: str, width: int, theme: str, **state: Any) -> None:
    page = here.page(width, view=view, theme=theme, **state)
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out at the side
    finish(page)


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(view: str, opened: Opened) -> None:
    states: dict[str, dict[str, Any]] = {
        "write": {"width": 1280, "theme": "light", "mode": "sample"},
        "look": {"width": 400, "theme": "dark", "off": "decoder.1.self.1", "tour": 6},
        "cell": {"width": 1280, "theme": "light", "at": "decoder.1.self.1", "step": 2},
        "switch": {"width": 1280, "theme": "dark", "sw": "scale"},
        "layers": {"width": 400, "theme": "light"},
    }
    looked_at(opened, view, **states[view])


@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_serious_anywhere(kind: str, width: int, chromium: Any, tmp_path: Path) -> None:
    here = Opened(small_session(tmp_path / "run", kind), chromium)
    at = here.session.model()["attentions"][0]["at"]
    try:
        for theme in ("light", "dark"):
            for view in VIEWS:
                looked_at(here, view, width, theme, mode="greedy" if kind == "encoder" else "beam", off=f"{at}.1")
    finally:
        here.close()


def test_the_keyboard_alone_reaches_everything(opened: Opened) -> None:
    page = opened.page(view="write")
    order = tab_through(page)
    for wanted in (
        "q",
        "tourButton",
        "theme",
        "first",
        "greedy",
        "beam",
        "s0",
        "w0",
        "write",
        "layers",
        "decoder.1.self",
    ):
        assert wanted in order, f"{wanted} is not reached: {order}"
    assert order.index("q") < order.index("s0") < order.index("write") < order.index("first")
    page.keyboard.press("2")
    settled(page)
    page.wait_for_selector("#worth:has-text('nats')")
    assert {"silence", "open", "big", "mean", "sort worth", "ten"} <= set(tab_through(page))
    page.locator("#big").focus()
    before = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowDown")
    settled(page)
    assert page.evaluate("document.activeElement.id") == "big"  # focus survives the redrawing
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") != before
    said = page.locator("#live").inner_text()
    base = opened.session.read(PassRequest(TEXT))
    assert said.startswith(f"{base['predicted'][1]['text']} looks at ")
    page.keyboard.press("Enter")
    settled(page)
    assert "view=cell" in page.url
    page.keyboard.press("4")
    settled(page)
    page.locator("[data-switch=scale] .toggle").focus()
    page.keyboard.press("Space")
    settled(page)
    assert page.locator("#edited").count() == 1
    page.keyboard.press("Escape")
    settled(page)
    assert page.locator("#edited").count() == 0
    page.keyboard.press("ArrowRight")
    settled(page)
    assert "step=2" in page.url
    finish(page)


def tab_through(page: Any) -> list[str]:
    """The names of what the Tab key comes by, from the top of the page to its end."""
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    found: list[str] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "(e => e === document.body ? null : e.dataset.key || e.id || e.tagName)(document.activeElement)"
        )
        if name is None or (found and name == found[0] and len(found) > 5):
            break
        found.append(name)
    return found


def test_a_finger_steps_chooses_and_silences(opened: Opened) -> None:
    context = opened.chromium.new_context(viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{opened.port}/#view=look&text=the+cat&at=decoder.1.cross.1&src=0")
    settled(page)
    small = page.evaluate(
        "[...document.querySelectorAll('button:not(.tok), a, summary, input, select')].filter(e => e.offsetWidth && "
        "!e.closest('.sr') && !e.classList.contains('sr')).map(e => [e.id || e.dataset.key || e.textContent, "
        "(e.closest('label') || e).getBoundingClientRect()]).filter(([, box]) => box.height < 36).map(([name]) => name)"
    )
    assert small == []
    page.locator("#big").scroll_into_view_if_needed()
    box = page.locator("#big").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 20, box["y"] + box["height"] - 20)
    settled(page)
    base = opened.session.read(PassRequest(TEXT))
    assert f"src={len(base['source']) - 1}" in page.url
    assert f"step={len(base['answer']) - 1}" in page.url
    page.locator("#silence").tap()
    settled(page)
    assert "off=decoder.1.cross.1" in page.url
    context.close()


def test_what_is_shown_can_be_saved(opened: Opened) -> None:
    page = opened.page(view="look", at="decoder.1.cross.2", step=1, src=1)

    def saved(button: str) -> bytes:
        page.click("#menu summary")
        with page.expect_download() as waiting:
            page.click(f"#{button}")
        return Path(waiting.value.path()).read_bytes()

    told = json.loads(saved("saveJson"))
    made = opened.session.read(PassRequest(TEXT))
    weights = opened.session.passes[made["id"]].taken["decoder.layers.0.cross_attention.weights"][0, 1]
    assert told["weights"] == [pytest.approx(row, abs=1e-6) for row in weights.tolist()]
    assert told["pass"]["answer"] == made["answer"]
    drawing = xml.etree.ElementTree.fromstring(saved("saveSvg"))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}path")) > 0
    assert len(drawing.findall("{http://www.w3.org/2000/svg}image")) == 2  # the head, and what is chosen in it
    assert saved("savePng").startswith(b"\x89PNG")
    page.keyboard.press("4")
    settled(page)
    assert b"foreignObject" in saved("saveSvg")
    finish(page)
