"""The single file's JavaScript computes what Python computes: every tensor, every answer, for every choice of model."""

import base64
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.explore.requests import OfPass, PassRequest, TensorRequest
from clearhead.explore.session import Session
from clearhead.explore.single_file import can_be_alive, settings_of, tokenizer_of
from clearhead.explore.wire import Sent, pack, unpack
from clearhead.settings import from_dict
from tests.decoding.models import byte_tokenizer, opinionated, write_run
from tests.explore.browser import HERE, answer_from_memory

CLOSE = 1e-4
EVERYTHING = {"off", "even", "sw"}  # the edits of which every number is compared
START = 'import { openSource } from "./source.js"; window.source = await openSource();'
MODELS: dict[str, dict[str, Any]] = {
    "the paper's": {"preset": "tiny", "norm": {"placement": "post"}},
    "pre-norm, learned, gelu, untied": {
        "preset": "tiny",
        "positions": {"kind": "learned", "max_length": 64},
        "activation": "gelu",
        "head": {"tied": False, "bias": True},
    },
    "llama's": {"preset": "llama", "kv_heads": 1, "heads": 2, "head": {"bias": True}},
    "alibi, six heads, window": {
        "preset": "gpt2",
        "positions": {"kind": "alibi"},
        "d_model": 18,
        "heads": 6,
        "window": 4,
        "head": {"bias": True},
    },
    "rope interleaved, silu, rms post": {
        "preset": "gpt2",
        "positions": {"kind": "rope"},
        "activation": "silu",
        "norm": {"kind": "rms", "placement": "post"},
    },
    "gpt2's": {"preset": "gpt2", "positions": {"kind": "learned", "max_length": 40}},
    "bert's, masked": {"preset": "bert-base", "head": {"kind": "masked", "bias": True}},
    "labels": {"preset": "tiny", "kind": "encoder", "head": {"kind": "tokens", "classes": 5, "bias": False}},
    "a class, no positions": {
        "preset": "tiny",
        "kind": "encoder",
        "head": {"kind": "pooled", "classes": 3, "bias": False},
        "positions": {"kind": "none"},
        "activation": "gelu_tanh",
    },
    "vectors": {"preset": "tiny", "kind": "encoder", "head": {"kind": "none", "bias": False}},
}
OFTEN = ("the paper's", "llama's", "alibi, six heads, window", "bert's, masked")  # the others: make test-long
TEXTS = ["the cat sat", "l'été à 12 heures, 日本 <script>", "a\t\n  b  ", "<mask> the dog"]
Ask = Callable[..., Any]


def session_of(name: str, folder: Path) -> Session:
    tokenizer = byte_tokenizer()
    settings = dict(MODELS[name])
    model = opinionated(7, settings.pop("preset"), 1.6, vocab_size=tokenizer.size, **settings).float()
    tables: dict[str, Any] = {"data": {"text": "x", "documents": "line"}, "decoding": {"max_extra": 4, "max_tokens": 9}}
    return Session(str(write_run(folder, model, tokenizer, **tables)))


def opened(chromium: Any, session: Session) -> tuple[Any, Ask]:
    """A page whose source is alive with this session's model, and a way to ask it."""
    loaded = session.loaded()
    assert can_be_alive(loaded)
    carried = {
        "model": session.model(),
        "training": session.training(),
        "first": "",
        "settings": settings_of(loaded),
        "tokenizer": tokenizer_of(loaded),
    }
    weights = pack([Sent(name, "", weight) for name, weight in loaded.model.state_dict().items()])
    page = chromium.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    answer_from_memory(page, carried, base64.b64encode(weights).decode(), START)
    page.goto(HERE)
    page.wait_for_function("window.source", timeout=20_000)

    def ask(method: str, *words: Any) -> Any:
        call = "async ([method, words]) => JSON.stringify(await window.source[method](...words), (k, v) => "
        numbers = "ArrayBuffer.isView(v) ? Array.from(v) : v === -Infinity ? '-inf' : v)"
        try:
            return json.loads(page.evaluate(call + numbers, [method, list(words)]))
        finally:
            assert not said, said

    return page, ask


def alike(found: Any, wanted: Any, where: str = "") -> None:
    """The same shape, the same text, numbers within 1e-4."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for key in wanted:
            if key not in ("id", "milliseconds") or not where.endswith("pass"):
                alike(found[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted), f"{where}: {found} {wanted}"
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            alike(one, other, f"{where}[{place}]")
    elif isinstance(wanted, float) and not isinstance(wanted, bool):
        assert math.isclose(found, wanted, rel_tol=CLOSE, abs_tol=CLOSE), f"{where}: {found} is not {wanted}"
    else:
        assert found == wanted, f"{where}: {found!r} is not {wanted!r}"


def same_numbers(found: dict[str, Any], wanted: Tensor, where: str) -> None:
    """Within 1e-4 of the largest number of a tensor: without norms, these grow into the hundreds."""
    assert found["shape"] == list(wanted.shape), where
    data = torch.tensor([float(number) for number in found["data"]]).reshape(wanted.shape)
    finite = wanted.float().isfinite()
    assert torch.equal(data.isfinite(), finite), where
    size = max(1.0, float(wanted.float()[finite].abs().max()))
    assert float((data - wanted.float())[finite].abs().max()) <= CLOSE * size, where


def requests_for(session: Session, text: str) -> list[dict[str, Any]]:
    """A plain pass, every switch, heads off and even, forced, sampled, by beam, and an answer that was given."""
    config, model = session.loaded().model.config, session.model()
    at = model["attentions"][-1]["at"]
    found: list[dict[str, Any]] = [{"text": text}]
    found += [{"text": text, "edits": {"sw": [switch["id"]]}} for switch in model["switches"]]
    found += [{"text": text, "edits": {"off": [f"{at}.1"], "even": [f"{at}.2"], "sw": ["ff"]}}]
    if config.kind != "encoder":
        found += [
            {"text": text, "edits": {"force": [[1, 40], [2, 41]]}},
            {"text": text, "search": {"kind": "beam", "beam_size": 3}},
            {"text": text, "search": {"kind": "sample", "temperature": 1.5, "top_k": 40, "top_p": 0.9, "seed": 3}},
            {"text": text, "search": {"kind": "sample", "min_p": 0.05, "seed": 4294967295}, "max_tokens": 5},
            {"text": text, "target": "the mat", "look": "scoring"},
            {"text": text, "answer": [50, 60, 70], "edits": {"sw": ["scale"], "off": [f"{at}.2"]}},
            {"text": text, "answer": [50, 60], "write": False, "look": "scoring", "keep": False},
        ]
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.long]) for name in MODELS]
)
def test_javascript_computes_what_python_computes(name: str, chromium: Any, tmp_path: Path) -> None:
    session = session_of(name, tmp_path)
    page, ask = opened(chromium, session)
    for asked in requests_for(session, TEXTS[0]):
        wanted = session.read(from_dict(PassRequest, asked))
        found = ask("pass", asked)
        alike(found, json.loads(json.dumps(wanted)), f"{asked}: pass")
        if asked.get("edits", {}).keys() not in ({}.keys(), EVERYTHING) or wanted["id"] is None or "search" in asked:
            continue  # of these, the least, greatest and mean of every tensor were compared
        names = [row["name"] for row in wanted["tensors"]]
        assert len(names) > 15
        sent = unpack(session.tensors(TensorRequest(wanted["id"], from_wanted(names))))
        for tensor in ask("tensors", found["id"], [{"name": one} for one in names]):
            same_numbers(tensor, sent[tensor["name"]], f"{asked}: {tensor['name']}")
    for text in TEXTS[1:]:
        alike(ask("pass", {"text": text}), json.loads(json.dumps(session.read(PassRequest(text)))), f"{text!r}: pass")
    made, found = session.read(PassRequest(TEXTS[0])), ask("pass", {"text": TEXTS[0]})
    alike(ask("guesses", found["id"]), json.loads(json.dumps(session.guesses(OfPass(made["id"])))), "guesses")
    if made["answer"]:
        alike(ask("worth", found["id"]), json.loads(json.dumps(session.worth(OfPass(made["id"])))), "worth")
    page.close()


def from_wanted(names: list[str]) -> Any:
    return from_dict(TensorRequest, {"id": "", "wanted": [{"name": one} for one in names]}).wanted
