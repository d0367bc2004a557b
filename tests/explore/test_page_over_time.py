"""A run that was trained: a visit to all views by typing and clicking, and what view 5 tells of it: guesses layer by
layer, caches, curves that go on, and every kept checkpoint."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearhead.explore.requests import Edits, OfPass, PassRequest
from clearhead.explore.session import Session
from tests.explore.opened import Opened, finish, number, settled

TEXT = "3 1 2"
SHORT = ("training.steps=30", "training.validate_every=10", "training.warmup=5", "training.max_tokens=256")


@pytest.fixture(scope="module")
def opened(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    run = tmp_path_factory.mktemp("trained") / "copy"
    words = ["train", "copy", "--run", str(run), *(word for one in SHORT for word in ("--set", one))]
    subprocess.run([sys.executable, "-m", "clearhead", *words], check=True, capture_output=True, timeout=300)
    made = Opened(Session(str(run), "latest"), chromium)
    yield made
    made.close()


def test_a_visit_to_every_view(opened: Opened) -> None:
    """Each view is reached and used by hand, and what it says is what Python says."""
    page = opened.page(text=TEXT)
    page.fill("#q", "5 5 1")
    page.keyboard.press("Enter")
    settled(page)
    base = opened.session.read(PassRequest("5 5 1"))
    assert page.locator(".toks").nth(1).locator(".tok").all_inner_texts() == [one["text"] for one in base["answer"]]
    page.click("[aria-label='Step on']")
    settled(page)
    chances = page.locator("#bars .bar:not(.rest) [data-p]")
    for place, one in enumerate(base["writing"]["top"][1][:5]):
        assert float(chances.nth(place).get_attribute("data-p")) == pytest.approx(one["p"], abs=1e-6)

    page.click("nav.tabs a[data-key=look]")
    page.wait_for_selector("#worth:has-text('nats')")
    settled(page)
    worth = {one["at"]: one["worth"] for one in opened.session.worth(OfPass(base["id"]))["heads"]}
    best = max((name for name in worth if ".cross." in name), key=lambda name: worth[name])
    page.locator(".thumb").first.click()  # by worth, cross-attention first
    settled(page)
    assert f"at={best}" in page.url
    assert number(page.locator("#worth").inner_text().split()[0]) == pytest.approx(worth[best], abs=6e-4)
    page.locator("#arcs .word").nth(2).click()
    page.click("#open")
    settled(page)
    at, head = best.rsplit(".", 1)
    path = next(one["path"] for one in base["attentions"] if one["at"] == at)
    taken = opened.session.passes[base["id"]].taken
    weight, score = (float(taken[f"{path}.{name}"][0, int(head) - 1, 1, 2]) for name in ("weights", "scores"))
    assert number(page.locator("#share").inner_text()) == pytest.approx(weight, abs=5.1e-4)
    assert number(page.locator("#score").inner_text()) == pytest.approx(score, abs=6e-4)
    first = page.locator(".st").first.inner_text()  # how this run's tokenizer does it, not how another does
    assert "text → integers → ids" in first
    assert "ids.append(len(self.special) + int(digits))" in first

    page.click("nav.tabs a[data-key=switch]")
    settled(page)
    page.click("[data-switch=positions] .toggle")
    settled(page)
    without = Edits(sw=("positions",))
    after = opened.session.read(PassRequest("5 5 1", edits=without, answer=tuple(base["scoring"]["ids"])))
    assert page.locator("#now").inner_text() == after["writing"]["text"]
    change = after["scoring"]["log_prob"] - base["scoring"]["log_prob"]
    assert number(page.locator("#scoring").inner_text().rsplit(" ", 1)[1]) == pytest.approx(change, abs=0.0051)
    page.click("#undo")
    page.click("nav.tabs a[data-key=layers]")
    settled(page)
    last = page.locator("table.lens tbody tr").last.locator("td").nth(1)
    assert float(last.get_attribute("data-right")) == pytest.approx(math.exp(base["scoring"]["log_probs"][1]), abs=1e-5)
    finish(page)


def test_guesses_and_caches_are_pythons(opened: Opened) -> None:
    page = opened.page(text=TEXT, view="layers", step=1)
    made = opened.session.read(PassRequest(TEXT))
    states = opened.session.guesses(OfPass(made["id"]))["states"]
    rows = page.locator("table.lens tbody tr")
    assert rows.count() == len(states) == 7
    for place, state in enumerate(states):
        cells = rows.nth(place).locator("td")
        for step, guess in enumerate(state["guesses"]):
            cell = cells.nth(step)
            assert float(cell.get_attribute("data-right")) == pytest.approx(guess["right"], abs=1e-6)
            assert cell.locator("small").inner_text() == str(round(100 * guess["p"]))
    told = page.locator("#cache p.num").inner_text()
    own, cross = made["cache"]["self"][1], made["cache"]["cross"]
    assert f"self-attention {own:,} bytes" in told
    assert f"cross-attention {cross:,} bytes" in told
    rows.nth(3).locator("td").nth(2).click()
    settled(page)
    assert "step=2" in page.url
    finish(page)


def test_every_checkpoint_can_be_scrubbed_to(opened: Opened) -> None:
    page = opened.page(text=TEXT, view="layers", at="decoder.1.cross.1")
    ids = tuple(opened.session.read(PassRequest(TEXT))["scoring"]["ids"])
    kept = [one["name"] for one in opened.session.training()["checkpoints"]]
    assert len(kept) == 3
    page.locator("#scrub").focus()
    page.keyboard.press("Home")
    for place, name in enumerate(kept):
        settled(page)
        assert page.locator("#checkpoint").inner_text().startswith(f"step {int(name[5:])}")
        then = opened.session.read(PassRequest(TEXT, checkpoint=name, answer=ids, look="scoring"))
        assert number(page.locator("#thenScores").inner_text().split()[-1]) == pytest.approx(
            then["scoring"]["log_prob"], abs=0.0051
        )
        assert page.locator("#thenWrites").inner_text() == then["writing"]["text"]
        if place == 0:
            page.locator("#training summary").click()  # once: a fold stays open
        page.wait_for_selector("#training .cellsTable")
        at = opened.session.passes[then["id"]].taken["decoder.layers.0.cross_attention.weights"][0, 0]
        shown = page.locator("#training .cellsTable tbody td").all_inner_texts()
        assert [number(text) for text in shown] == pytest.approx(at.flatten().tolist(), abs=5.1e-4)
        if place + 1 < len(kept):
            page.locator("#scrub").focus()
            page.keyboard.press("ArrowRight")
    finish(page)


def test_curves_go_on_while_the_run_is_trained(opened: Opened) -> None:
    page = opened.page(text=TEXT, view="layers")
    assert page.locator("[data-curve]").count() == 3
    assert "30 of 30 steps" in page.locator("#training").inner_text()
    metrics = Path(opened.session.run.path) / "metrics.jsonl"
    row = {**json.loads(metrics.read_text().splitlines()[-1]), "step": 40, "loss": 0.125}
    with metrics.open("a") as file:
        file.write(json.dumps(row) + "\n")
    page.wait_for_selector("#training:has-text('40 of 30 steps')", timeout=10_000)
    assert page.locator("[data-curve=loss] .num").inner_text() == "0.125"
    finish(page)
