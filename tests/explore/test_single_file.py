"""The page as one file: complete, alone in the world, alive where the model is small, and with the right tokens."""

import json
import re
import time
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from clearhead.explore import bundle, single_file
from clearhead.explore.requests import Edits, PassRequest
from clearhead.explore.session import Session
from clearhead.explore.single_file import can_be_alive, in_javascript, page_of, tokenizer_of
from clearhead.model import configure
from clearhead.tokenizer import BytePair, Characters, Tokenizer
from clearhead.tokenizer.characters_and_integers import Integers
from clearhead.tokenizer.split import KNOWN, PATTERNS
from tests.decoding.models import byte_tokenizer, opinionated, write_run
from tests.explore.runs import small_session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return small_session(tmp_path / "run", "encoder-decoder")


def opened(chromium: Any, path: Path) -> tuple[Any, list[str]]:
    """The file in a browser; whatever it says, or asks for elsewhere, is kept."""
    page, said = chromium.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request",
        lambda asked: said.append(asked.url) if not asked.url.startswith(("file:", "data:", "blob:")) else None,
    )
    page.goto(path.as_uri())
    return page, said


def settled(page: Any) -> str:
    """The text of the page once it has an answer; asked from outside, because the file's policy forbids eval."""
    deadline = time.monotonic() + 20
    while not page.locator("body[data-idle]").count() and time.monotonic() < deadline:
        time.sleep(0.05)
    return str(page.locator("body").inner_text())


def test_a_head_is_silenced_and_brought_back(chromium: Any, session: Session, tmp_path: Path) -> None:
    """What the page says of an edit is what Python says of it."""
    page_of("", "the cat", session=session).save(tmp_path / "page.html")
    shown, said = opened(chromium, tmp_path / "page.html")
    settled(shown)
    shown.keyboard.press("2")
    shown.wait_for_selector("#silence")
    base = session.read(PassRequest("the cat"))
    at = f"{session.model()['attentions'][-1]['at']}.1"
    edited = session.read(PassRequest("the cat", edits=Edits(off=(at,)), answer=tuple(base["writing"]["ids"])))
    change = edited["scoring"]["log_prob"] - base["scoring"]["log_prob"]
    shown.click("#silence")
    shown.wait_for_selector("#scoring")
    told = float(shown.locator("#scoring").inner_text().rsplit(" ", 1)[1].replace("−", "-"))
    assert told == pytest.approx(change, abs=0.0051)
    shown.click("#undo")
    shown.wait_for_selector("#edited", state="detached")
    assert not said, said


def test_the_file_computes_by_itself(chromium: Any, session: Session, tmp_path: Path) -> None:
    """On the page as it is: it shows what Python writes, says nothing in the console, asks nobody."""
    page = page_of("", "the cat", session=session)
    assert page.alive
    page.save(tmp_path / "page.html")
    shown, said = opened(chromium, tmp_path / "page.html")
    wanted = session.read(PassRequest("the cat"))["answer"]
    text = settled(shown)
    assert all(token["text"] in text for token in wanted if token["text"] != "</s>"), text
    assert not said, said
    shown.close()


def test_the_file_holds_nothing_that_runs_but_its_own(session: Session, tmp_path: Path) -> None:
    page = page_of("", "</script><script>alert(1)</script>", session=session).html
    assert page.count("<script") == 3
    assert "alert(1)</script>" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page.split('id="clearhead-carried"')[0])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert "CLEARHEAD_TOKEN" not in page


def test_a_notebook_shows_it_in_a_frame(session: Session) -> None:
    shown = page_of("", "the cat", session=session)._repr_html_()
    assert shown.startswith("<iframe")
    assert "<script" not in shown
    assert 'sandbox="allow-scripts allow-forms allow-downloads"' in shown


def test_it_computes_in_the_frame_of_a_notebook(chromium: Any, session: Session, tmp_path: Path) -> None:
    cell = page_of("", "the cat", session=session)._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><title>notebook</title>{cell}")
    shown, said = opened(chromium, tmp_path / "notebook.html")
    inside = shown.frame_locator("iframe")
    inside.locator("#bars .bar").first.wait_for()
    inside.locator("#q").fill("a dog")
    inside.locator("button.main").click()
    wanted = [token["text"] for token in session.read(PassRequest("a dog"))["source"]]
    read, deadline = inside.locator(".toks").first.locator(".tok"), time.monotonic() + 20
    while read.all_inner_texts() != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    assert read.all_inner_texts() == wanted
    inside.locator("nav.tabs a[data-key=look]").click()
    inside.locator("#silence").click()
    inside.locator("#scoring").wait_for()
    assert not said, said
    shown.close()


def test_a_big_model_is_stored_as_one_pass(
    chromium: Any, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_file, "MOST_PARAMETERS", 100)
    monkeypatch.setattr(single_file, "MOST_STORED", 20_000)
    page = page_of("", "the cat", session=session)
    assert not page.alive
    carried = json.loads(re.search(r'id="clearhead-carried">(.*?)</script>', page.html)[1])  # type: ignore[index]
    names = [row["name"] for row in carried["stored"]["pass"]["tensors"]]
    assert "decoder.layers.1.cross_attention.weights" in names
    assert "output.logits" not in names  # there was no room for all
    assert len(carried["stored"]["worth"]["heads"]) == 12
    page.save(tmp_path / "page.html")
    shown, said = opened(chromium, tmp_path / "page.html")
    assert "the␣cat" in settled(shown).replace("\n", "")
    assert not said, said
    shown.close()


def test_every_recipe_is_followed() -> None:
    """All choices of the packaged recipes, at their own sizes where these are known before training."""
    for path in sorted((Path(__file__).resolve().parents[2] / "clearhead" / "recipes").glob("*.toml")):
        recipe = tomllib.loads(path.read_text())
        settings = {"vocab_size": recipe.get("tokenizer", {}).get("vocab_size", 520), **recipe["model"]}
        settings.setdefault("vocab_size", 520)
        preset = settings.pop("preset")
        if settings.get("kind") == "encoder":
            settings["head"] = {"kind": "masked"} if "masked" in path.name else {"kind": "tokens", "classes": 20}
        followed = single_file.follows(configure(preset, **settings))
        assert followed, path.name


def test_an_unknown_choice_is_not_followed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_be_alive(session.loaded())
    monkeypatch.delitem(single_file.FOLLOWED, "d_ff")  # as if it were new
    assert not can_be_alive(session.loaded())


# ---- the page's modules --------------------------------------------------------------------------------------------


def test_modules_become_one_script() -> None:
    text = bundle.bundle()
    assert not re.search(r"^\s*(import|export)\b", text, re.MULTILINE)
    for name in ("wire", "forward", "alive", "source"):
        assert text.count(f"const module_{name} = ") == 1
    assert text.index("const module_wire") < text.index("const module_source")


@pytest.mark.parametrize(
    "line",
    [
        'import * as x from "./wire.js";',
        'import "./wire.js";',
        "export default 5;",
        'const x = await import("./wire.js");',
    ],
)
def test_what_cannot_be_put_into_one_file_is_refused(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.js").write_text(f"{line}\n")
    monkeypatch.setattr(bundle, "PAGE", tmp_path)
    with pytest.raises(ValueError, match=r"main\.js cannot be put into one file"):
        bundle.bundle()


# ---- tokens --------------------------------------------------------------------------------------------------------

ODD = [
    "I'll they'Re IT'S it'ſ don't 12345 x1y2 ¼½ Ⅷ",
    "camelCase HTTPServer ÉTÉ été ǅ Æther",
    "  leading  and   trailing \t\n\r\n \u00a0\u2003x\u3000\n\n",
    "日本語テキスト 한국어 ไทย العربية 🎉👩‍👩‍👧 e\u0301 \u200b\ufeff",
    "\x00\x1c\x85 a_b-c/d\\e #%&! ...///\n",
    "<s></s><mask><pad>",
]


@cache
def tokenizers() -> dict[str, Tokenizer]:
    base = byte_tokenizer()
    patterns = {f"pattern {number}": pattern for number, pattern in enumerate(sorted({*PATTERNS.values(), *KNOWN}))}
    made: dict[str, Tokenizer] = {
        name: BytePair(base.vocabulary, base.merges, base.special, pattern) for name, pattern in patterns.items()
    }
    made["whole words"] = BytePair(
        {**base.vocabulary, b"zebra": base.size}, base.merges, base.special, "gpt2", whole_words=True
    )
    made["characters"] = Characters.train(["I'll the cat été 日本 12"])
    return made


@pytest.mark.parametrize("name", tokenizers())
def test_the_page_reads_tokens_as_python_does(name: str, chromium: Any, tmp_path: Path) -> None:
    tokenizer = tokenizers()[name]
    model = opinionated(0, "llama", vocab_size=tokenizer.size, kv_heads=1).float()
    loaded = Session(str(write_run(tmp_path / "run", model, tokenizer))).loaded()
    texts = [*ODD, "a zebra zebra", "the cat sat on the mat and the dog"]
    found = in_page(chromium, tokenizer_of(loaded), texts)
    for text, (ids, decoded) in zip(texts, found, strict=True):
        assert ids == tokenizer.encode_ordinary(text), text
        assert decoded == tokenizer.decode(ids), text


def test_the_page_reads_integers_as_python_does(chromium: Any, tmp_path: Path) -> None:
    tokenizer = Integers(30)
    model = opinionated(0, "tiny", vocab_size=tokenizer.size).float()
    loaded = Session(str(write_run(tmp_path / "run", model, tokenizer))).loaded()
    texts = ["3 1 2", " 007\t29\n0 ", "1\x1c2\u20033"]
    for text, (ids, decoded) in zip(texts, in_page(chromium, tokenizer_of(loaded), texts), strict=True):
        assert ids == tokenizer.encode_ordinary(text)
        assert decoded == tokenizer.decode(ids)
    for wrong in ("30", "x", "-1", "9" * 50):
        with pytest.raises(Exception, match="is not an integer from 0 to 29"):
            in_page(chromium, tokenizer_of(loaded), [wrong])


def in_page(chromium: Any, carried: dict[str, Any], texts: list[str]) -> Any:
    from tests.explore.browser import HERE, answer_from_memory

    page = chromium.new_page()
    start = 'import { Tokenizer } from "./tokenize.js"; window.make = carried => new Tokenizer(carried);'
    answer_from_memory(page, {}, "", start)
    page.goto(HERE)
    page.wait_for_function("window.make", timeout=20_000)
    both = "texts.map(text => [made.encode(text), made.decode(made.encode(text))])"
    call = f"([carried, texts]) => {{ const made = make(carried); return {both}; }}"
    try:
        return page.evaluate(call, [carried, texts])
    finally:
        page.close()


def test_patterns_in_javascript() -> None:
    assert in_javascript(r"'(?i:[sd]|ll)|\s+(?!\S)") == r"'(?:[sSſdD]|[lL][lL])|\p{White_Space}+(?!\P{White_Space})"
