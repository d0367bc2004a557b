"""Small runs to export: random weights with strong opinions, in every shape that some format has a home for."""

import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from clearhead.tokenizer import SPECIAL, BytePair, Tokenizer, train
from tests.decoding.models import opinionated, write_run

TEXTS = ["the cat sat", "", "Ünïcödé 日本 🙂", "the dog sat on the mat and the cat", "</s> is text, 12 345!"]
TOLERANCE = 1e-4  # of log-probabilities
POST_NORM: dict[str, Any] = {"norm": {"placement": "post"}}
LLAMA: dict[str, Any] = {
    "activation": "swiglu",
    "bias": False,
    "norm": {"kind": "rms"},
    "positions": {"kind": "rope", "layout": "split"},
    "embedding": {"scaled": False},
    "head": {"bias": False},
}
LEARNED: dict[str, Any] = {"positions": {"kind": "learned", "max_length": 90}}


@cache
def tokenizer(special: tuple[str, ...] = SPECIAL, pattern: str = "gpt2") -> BytePair:
    texts = ["the cat sat on the mat and the dog sat on the cat 12 345 日本日本 Ünïcödé " * 20]
    return train(texts, 290, special=special, pattern=pattern, workers=1)


def run_of(
    path: Path, kind: str, words: Tokenizer | None = None, source: Tokenizer | None = None, **changes: Any
) -> Path:
    """A run in float32; what is not the model's is a table of config.toml (data, decoding)."""
    words = words or tokenizer((*SPECIAL, "<mask>") if kind == "encoder" else SPECIAL)
    tables = {name: changes.pop(name) for name in ("data", "decoding") if name in changes}
    tables.setdefault("decoding", {"max_extra": 6, "max_tokens": 12})
    if kind == "decoder":
        tables.setdefault("data", {"text": "x", "documents": "line"})
    if source is not None:
        changes["source_vocab_size"] = source.size
    changes = {"vocab_size": words.size, "norm": {"placement": "pre"}, "heads": 4, **changes}
    model = opinionated(0, "tiny", 2.0, kind=kind, **changes).float()
    write_run(path, model, words, **tables)
    if source is not None:
        source.save(path / "source_tokenizer.json")
    return path


def some(names: Iterable[str], *often: str) -> list[Any]:
    """All names to try; but those not named here only among the long tests."""
    return [name if name in often else pytest.param(name, marks=pytest.mark.long) for name in names]


def fuzzed(count: int, seed: int = 0) -> list[str]:
    """Texts of all sorts of characters, special tokens and white space among them."""
    chance = random.Random(seed)
    pieces = [*"abcTHE 012  \n\t.,!?'\"’", " the", " cat", "日", "本", "é", "e\u0301", "🙂", "\u200b", "\xa0", "ß", "İ"]
    pieces += ["</s>", "<s>", "<pad>", "<mask>", "don't", "'LL", "１２", "\r\n", "\u3000", "ﬁ", "नि"]
    return ["".join(chance.choices(pieces, k=chance.randrange(40))) for _ in range(count)]
