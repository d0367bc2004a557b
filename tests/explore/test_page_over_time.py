"""View 5, on a run that was trained: guesses layer by layer, caches, curves that go on, and every kept checkpoint."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearhead.explore.requests import OfPass, PassRequest
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
        if place + 1 < len(kept):
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
