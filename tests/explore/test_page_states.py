"""What the page shows when there is nothing, too much, or nobody to ask: empty, loading, refused, server gone, a run
that has no checkpoint yet, long texts, deep models, an address that fits nothing."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearhead.explore.requests import Edits, PassRequest
from clearhead.explore.session import Session
from tests.decoding.models import byte_tokenizer, opinionated, write_run
from tests.explore.opened import TEXT, Opened, finish, number, settled
from tests.explore.runs import small_session


@pytest.fixture(scope="module")
def opened(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    made = Opened(small_session(tmp_path_factory.mktemp("states") / "run", "encoder-decoder"), chromium)
    yield made
    made.close()


def tokens(page: Any, line: int) -> list[str]:
    return list(page.locator(".toks").nth(line).locator(".tok").all_inner_texts())


def test_an_empty_page_offers_three_texts(opened: Opened) -> None:
    page = opened.page(text="")
    examples = page.locator(".examples button").all_inner_texts()
    assert examples == opened.session.model()["examples"]
    assert len(examples) == 3
    page.locator(".examples button").nth(1).click()
    page.wait_for_selector("#bars .bar")
    assert page.input_value("#q") == examples[1]
    assert tokens(page, 1) == [one["text"] for one in opened.session.read(PassRequest(examples[1]))["answer"]]
    finish(page)


def test_a_mistake_is_one_line_and_the_last_pass_stays(opened: Opened) -> None:
    page = opened.page()
    before = tokens(page, 0)
    page.fill("#q", "x" * 9000)
    page.click("button.main")
    page.wait_for_selector("#problem:not(:empty)")
    assert page.locator("#problem").inner_text() == "the text has 9,000 letters; at most 8,000 are read"
    assert tokens(page, 0) == before
    page.fill("#q", "a dog")
    page.click("button.main")
    settled(page)
    assert page.locator("#problem").inner_text() == ""
    page.said = [text for text in page.said if "400 (Bad Request)" not in text]  # the browser's own word for it
    finish(page)


def test_the_old_picture_stays_dimmed_while_the_next_is_made(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    page = opened.page()
    before, read = tokens(page, 0), opened.session.read

    def slowly(asked: PassRequest) -> Any:
        time.sleep(0.6)
        return read(asked)

    monkeypatch.setattr(opened.session, "read", slowly)
    page.fill("#q", "a dog on the mat")
    page.click("button.main")
    page.wait_for_selector("body.busy", timeout=5000)
    assert tokens(page, 0) == before
    settled(page)
    page.wait_for_selector("body:not(.busy)")
    assert tokens(page, 0) != before
    finish(page)


def test_a_server_that_is_gone_says_how_to_start_it_again(chromium: Any, tmp_path: Path) -> None:
    here = Opened(small_session(tmp_path / "run", "encoder-decoder"), chromium)
    page = here.page()
    before = tokens(page, 1)
    here.close()
    page.click(".bar >> nth=1")
    page.wait_for_selector("#problem:has-text('the server is gone')")
    assert page.locator("#problem").inner_text().endswith(f"clearhead explore {tmp_path / 'run'}")
    assert tokens(page, 1) == before
    page.close()


def test_a_run_without_a_checkpoint_is_watched(chromium: Any, tmp_path: Path) -> None:
    run = small_session(tmp_path / "run", "encoder-decoder").run.path
    for path in sorted((run / "checkpoints").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (run / "latest").unlink()
    rows = [{"step": step, "loss": 4.0 - step / 10, "rate": 1e-3, "norm": 1.0} for step in range(1, 6)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    here = Opened(Session(str(run)), chromium)
    try:
        page = here.page(text="")
        assert page.evaluate("document.body.dataset.idle") == "unread"
        assert page.locator("[data-curve=loss] .num").inner_text() == "3.5"
        assert "5 of 10 steps" in page.locator("#training").inner_text()
        assert page.locator("#q").is_disabled()
        finish(page)
    finally:
        here.close()


def test_an_address_that_fits_nothing_shows_the_nearest_and_says_so(opened: Opened) -> None:
    page = opened.page(view="look", at="decoder.9.cross.1", off="decoder.1.self.77", step=500, mode="guess")
    last = len(opened.session.read(PassRequest(TEXT))["answer"])
    said = page.locator("#problem").inner_text()
    for wrong in ("no attention decoder.9.cross", "no head decoder.1.self.77", "mode=guess"):
        assert wrong in said
    assert f"step 501 is not there; shown is {last}" in said
    assert f"step={last - 1}" in page.url
    finish(page)


def test_pointing_never_chooses(opened: Opened) -> None:
    page = opened.page(view="look", at="decoder.1.cross.1", step=1, src=1)
    box, before = page.locator("#big").bounding_box(), page.url
    page.locator("#big").scroll_into_view_if_needed()
    box = page.locator("#big").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + box["height"] - 12)
    page.wait_for_function("document.getElementById('big').title.includes(' looks at ')")
    assert page.url == before
    finish(page)


def test_a_finger_drags_the_cross_hair(opened: Opened) -> None:
    context = opened.chromium.new_context(viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{opened.port}/#view=look&text=the+cat&at=decoder.1.cross.1&src=0&step=0")
    settled(page)
    page.locator("#big").scroll_into_view_if_needed()
    box, touch = page.locator("#big").bounding_box(), context.new_cdp_session(page)
    made = opened.session.read(PassRequest(TEXT))
    weights = opened.session.passes[made["id"]].taken["decoder.layers.0.cross_attention.weights"][0, 0]
    last = [{"x": box["x"] + box["width"] - 15, "y": box["y"] + box["height"] - 12}]
    first = [{"x": last[0]["x"] - 20, "y": last[0]["y"] - 20}]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": first})
    touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": last})
    shown = f"{made['predicted'][-1]['text']} looks at {made['source'][-1]['text']}: {float(weights[-1, -1]):.3f}"
    page.wait_for_function("shown => document.getElementById('chosen').textContent === shown", arg=shown)
    assert "src=0" in page.url  # not chosen before the finger is lifted
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function("src => location.hash.includes(src)", arg=f"src={len(made['source']) - 1}")
    assert f"step={len(made['answer']) - 1}" in page.url
    context.close()


def test_all_kinds_of_edits_at_once_each_taken_back_alone(opened: Opened) -> None:
    base = opened.session.read(PassRequest(TEXT))
    other, ids = base["writing"]["top"][1][1]["id"], tuple(base["scoring"]["ids"])
    page = opened.page(force=f"1:{other}", off="decoder.2.cross.1", sw="scale")
    wanted = Edits(force=((1, other),), off=("decoder.2.cross.1",), sw=("scale",))
    for dropped in (None, "off", "force"):
        if dropped:
            name = {"off": "decoder.2.cross.1 silenced", "force": "step 2 forced"}[dropped]
            page.click(f"[aria-label^='Undo: {name}']")
            settled(page)
            wanted = Edits(**{**vars(wanted), dropped: ()})
        made = opened.session.read(PassRequest(TEXT, edits=wanted, answer=ids, keep=False))  # the page's are kept
        assert tokens(page, 2) == [one["text"] for one in made["answer"]]
        told = number(page.locator("#writing").inner_text().rsplit(" ", 1)[1])
        assert told == pytest.approx(made["writing"]["log_prob"], abs=0.0051)
        change = made["scoring"]["log_prob"] - base["scoring"]["log_prob"]
        assert number(page.locator("#scoring").inner_text().rsplit(" ", 1)[1]) == pytest.approx(change, abs=0.0051)
    page.click("#undo")
    settled(page)
    assert page.locator("#edited").count() == 0
    finish(page)


# ---- long texts, deep models, heads that share keys ----------------------------------------------------------------


@pytest.mark.parametrize("letters", [50, 200])
def test_a_long_text_shows_the_heaviest_and_the_rest_as_one_number(letters: int, opened: Opened) -> None:
    text = "abcdefghij " * (letters // 11)
    page = opened.page(view="look", text=text, at="decoder.1.cross.2", step=1, src=3)
    made = opened.session.read(PassRequest(text))
    weights = opened.session.passes[made["id"]].taken["decoder.layers.0.cross_attention.weights"][0, 1, 1]
    assert len(weights) > 32
    shown = {*weights.topk(12).indices.tolist(), 3}
    rest = sum(float(weight) for place, weight in enumerate(weights) if place not in shown)
    assert page.locator("#others").inner_text() == f"+ {len(weights) - len(shown)} others: {rest:.2f}"
    legend = page.locator(".opened .legend").inner_text()
    largest = opened.session.passes[made["id"]].taken["decoder.layers.0.cross_attention.weights"][0, 1].max()
    assert (f"{float(largest):.2f}: this head’s largest" in legend) == (len(weights) > 64)
    page.locator(".opened summary").click()
    page.locator(".cellsTable thead th").first.wait_for(state="attached")
    assert page.locator(".cellsTable thead th").count() == 32
    finish(page)


def test_a_deep_model_is_folded_around_the_chosen_layer(chromium: Any, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    model = opinionated(3, "gpt2", 1.5, vocab_size=tokenizer.size, decoder_layers=14).float()
    run = write_run(tmp_path / "run", model, tokenizer, decoding={"max_tokens": 3})
    here = Opened(Session(str(run)), chromium)
    try:
        page = here.page(view="look", at="decoder.11.self.1")
        boxes = page.locator(".spine [data-key^='decoder.'][data-key$='.self']")
        shown = [boxes.nth(i).get_attribute("data-key") for i in range(boxes.count())]
        assert shown == [f"decoder.{layer}.self" for layer in range(7, 15)]
        assert "layers 7 to 14 of 14" in page.locator(".spine").inner_text()
        page.locator(".spine [data-key='decoder.8.self']").click()
        settled(page)
        assert "at=decoder.8.self.1" in page.url
        assert "layers 5 to 12 of 14" in page.locator(".spine").inner_text()
        finish(page)
    finally:
        here.close()


def test_a_language_model_writes_as_much_as_is_asked_and_shows_who_shares_keys(chromium: Any, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    model = opinionated(3, "llama", 1.5, vocab_size=tokenizer.size, heads=4, kv_heads=2, d_model=32).float()
    run = write_run(tmp_path / "run", model, tokenizer, data={"text": "x", "documents": "none"})
    here = Opened(Session(str(run)), chromium)
    try:
        page = here.page(view="write")
        written = here.session.read(PassRequest(TEXT, max_tokens=24))
        assert len(written["answer"]) == 24
        assert tokens(page, 0)[written["prompt"] :] == [one["text"] for one in written["answer"]]
        page.select_option("#room", "8")
        settled(page)
        assert len(tokens(page, 0)) == written["prompt"] + 8
        assert "tokens=8" in page.url
        page.keyboard.press("Escape")
        page.click("nav.tabs a[data-key=look]")
        page.wait_for_selector("#worth:has-text('nats')")
        settled(page)
        for order in ("worth", "entropy", "place"):
            page.click(f"[data-key='sort {order}']")
            settled(page)
            groups = page.evaluate(
                "[...document.querySelectorAll('.shared')].map(group => "
                "[...group.querySelectorAll('.thumb')].map(thumb => thumb.dataset.key))"
            )
            assert sorted(sorted(group) for group in groups) == [
                [f"decoder.{layer}.self.{first}", f"decoder.{layer}.self.{first + 1}"]
                for layer in range(1, model.config.decoder_layers + 1)
                for first in (1, 3)
            ]
        finish(page)
    finally:
        here.close()
