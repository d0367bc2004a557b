"""Answers in the shapes of OpenAI's API, and those of our own beside them."""

import base64
import secrets
import struct
import time
from collections.abc import Sequence
from typing import Any

from clearhead.decoding.load import LoadedModel
from clearhead.decoding.results import Translation
from clearhead.serve.growing import Piece

MOST_SAID = 500  # characters of a message: what was sent is told back, but not 64 KB of it
KINDS = {429: "rate_limit_error", 401: "authentication_error", 403: "permission_error"}


def error(status: int, message: str, code: str | None) -> dict[str, Any]:
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    message = message if len(message) <= MOST_SAID else message[:MOST_SAID] + "…"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def usage(prompt: int, written: int | None = None) -> dict[str, int]:
    total = {"prompt_tokens": prompt, "total_tokens": prompt + (written or 0)}
    return total if written is None else total | {"completion_tokens": written}


class Completion:
    """What all pieces of one answer share."""

    def __init__(self, model: str, checkpoint: str) -> None:
        self.shared = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": checkpoint,
        }

    def __call__(self, pieces: Sequence[tuple[int, Piece]], log_probs: bool, **more: Any) -> dict[str, Any]:
        return {**self.shared, "choices": [choice(number, piece, log_probs) for number, piece in pieces], **more}


def told_log_prob(value: float) -> float:
    """JSON has no infinity; −9999 is what OpenAI says instead."""
    return max(value, -9999.0)


def choice(number: int, piece: Piece, log_probs: bool) -> dict[str, Any]:
    told = None
    if log_probs:
        told = {
            "tokens": [one.token for one in piece.tokens],
            "token_logprobs": [told_log_prob(one.log_prob) for one in piece.tokens],
            "top_logprobs": [
                {name: told_log_prob(value) for name, value in one.likeliest.items()} for one in piece.tokens
            ],
            "text_offset": [one.offset for one in piece.tokens],
        }
    return {"text": piece.text, "index": number, "logprobs": told, "finish_reason": piece.finish}


def embedding(number: int, vector: Sequence[float], packed: bool) -> dict[str, Any]:
    made: Any = list(vector)
    if packed:
        made = base64.b64encode(struct.pack(f"<{len(made)}f", *made)).decode()
    return {"object": "embedding", "index": number, "embedding": made}


def translation(loaded: LoadedModel, source: Sequence[int], cut: bool, found: Translation) -> dict[str, Any]:
    """One text's translations, best first; alignment links places in the two lists of tokens."""
    made: dict[str, Any] = {
        "translations": [
            {"text": one.text, "score": one.score, "log_prob": one.log_prob, "finished": one.finished}
            for one in (found, *found.others)
        ],
        "source_cut": cut,
    }
    if found.alignment is not None:
        made["alignment"] = {
            "layer": found.alignment.layer,
            "source": [loaded.source_tokenizer.decode([token]) for token in source],
            "target": [loaded.tokenizer.decode([token]) for token in found.tokens],
            "links": [link._asdict() for link in found.alignment.links],
        }
    return made
