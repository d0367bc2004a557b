"""Small runs of the three kinds, as sessions."""

from pathlib import Path
from typing import Any

from clearhead.explore.requests import PassRequest
from clearhead.explore.session import Session
from clearhead.settings import from_dict
from tests.decoding.models import byte_tokenizer, opinionated, write_run

KINDS = ("encoder-decoder", "decoder", "encoder")
TABLES: dict[str, Any] = {
    "data": {"text": "x", "documents": "line"},
    "decoding": {"max_extra": 4, "max_tokens": 7},
    "training": {"label_smoothing": 0.1, "steps": 10},
}


def small_session(folder: Path, kind: str) -> Session:
    """A run of random weights that does not end at once."""
    tokenizer = byte_tokenizer()
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "encoder-decoder": ("tiny", {}),
        "decoder": ("llama", {"kv_heads": 1, "head": {"bias": True, "tied": False}, "init": "xavier"}),
        "encoder": ("tiny", {"kind": "encoder", "head": {"kind": "tokens", "classes": 5, "bias": False}}),
    }
    preset, changes = kinds[kind]
    model = opinionated(3, preset, 1.5, ending=-2.0, vocab_size=tokenizer.size, **changes).float()
    return Session(str(write_run(folder, model, tokenizer, **TABLES)))


def read(session: Session, text: str, **asked: Any) -> dict[str, Any]:
    """A pass by what the page would send."""
    return session.read(from_dict(PassRequest, {"text": text, **asked}))
