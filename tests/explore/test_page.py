"""The page in a real browser, served: every view is used by clicking and typing, and its numbers are Python's."""

import math
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from clearhead.decoding.sample import Sampling, candidates
from clearhead.explore.requests import Edits, OfPass, PassRequest, Search
from clearhead.explore.writing import forbidden
from tests.explore.opened import TEXT, Opened, finish, number, settled
from tests.explore.runs import KINDS, small_session


@pytest.fixture(scope="module")
def opened(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    made = Opened(small_session(tmp_path_factory.mktemp("page") / "run", "encoder-decoder"), chromium)
    yield made
    made.close()


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


def test_sampling_bends_the_bars(opened: Opened) -> None:
    how = Sampling(1.5, 4, 0.9, 0.0, 3)
    page = opened.page(view="write", mode="sample", temperature=1.5, top_k=4, top_p=0.9, seed=3)
    made = opened.session.read(PassRequest(TEXT, search=Search("sample", temperature=1.5, top_k=4, top_p=0.9, seed=3)))
    shown = page.locator(".toks").nth(1).locator(".tok").all_inner_texts()
    assert shown == [token["text"] for token in made["answer"]]
    logits = opened.session.passes[made["id"]].taken["output.logits"][0, :1].clone()
    logits[:, list(forbidden(opened.session.loaded()))] = -math.inf
    tokens, chances = candidates(logits, how)
    wanted = dict(zip(tokens[0].tolist(), (chances[0] / chances.sum()).tolist(), strict=True))
    bars = page.locator("#bars .bar:not(.rest)")
    assert bars.count() >= 5
    for place in range(bars.count()):
        token = int(bars.nth(place).get_attribute("data-key").split()[1])
        assert number(bars.nth(place).locator("[data-p]").inner_text()[:-2]) == pytest.approx(
            100 * wanted.get(token, 0), abs=0.0501
        )
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
    norms_are_what_the_rows_give(page)
    lines_are_those_of_the_package(page)
    finish(page)


def norms_are_what_the_rows_give(page: Any) -> None:
    """Mean and spread follow from all numbers of the row, which are shown too."""
    spreads = page.locator("[data-spread]")
    rows = page.evaluate(
        "[...document.querySelectorAll('tr.all')].map(r => [...r.querySelectorAll('td')].map(c => c.textContent))"
    )
    assert spreads.count() == len(rows) > 0
    for place, row in enumerate(rows):
        values = [number(text) for text in row]
        mean = sum(values) / len(values)
        spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values) + 1e-5)
        assert number(spreads.nth(place).inner_text()) == pytest.approx(spread, abs=2e-4)
        told = spreads.nth(place).locator("xpath=..").inner_text()
        assert number(re.findall("mean is ([−0-9.]+)", told)[0].rstrip(".")) == pytest.approx(mean, abs=2e-4)


def lines_are_those_of_the_package(page: Any) -> None:
    package = files("clearhead")
    shown = page.locator(".st .code").all_inner_texts()
    found = [part for text in shown for part in re.findall(r"clearhead/(\S+):(\d+)\n(.+)", text)]
    assert {"model/attention.py", "model/embedding.py", "model/feedforward.py"} <= {file for file, _, _ in found}
    for file, line, text in found:
        lines = (package / file).read_text(encoding="utf-8").splitlines()
        assert lines[int(line) - 1].strip() == text.strip()


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
    assert set(seen) == {"write", "look", "cell", "layers"}
    finish(page)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "encoder-decoder"])
def test_other_kinds_of_model_are_drawn(kind: str, chromium: Any, tmp_path: Any) -> None:
    made = Opened(small_session(tmp_path / "run", kind), chromium)
    try:
        page = made.page(view="write")
        for key in "12345":
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
