"""What the texts of a request become: whole characters, token ids, continuations with a chance of their own."""

import secrets
from typing import Any

from clearhead.decoding.rolling import Row
from clearhead.decoding.sample import Sampling
from clearhead.errors import InputError
from clearhead.serve.completing import Continuing
from clearhead.serve.growing import GrowingText
from clearhead.serve.models import Served
from clearhead.serve.requests import MOST_TEXTS, CompletionRequest


def whole_characters(text: str) -> str:
    """Half a character, which JSON can write and no file can hold, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def texts_of(given: str | tuple[str, ...]) -> list[str]:
    return [whole_characters(text) for text in ([given] if isinstance(given, str) else given)]


def tokens_of(model: Served, number: int, text: str) -> list[int]:
    """A text as an encoder reads it; `number` is its place in the request."""
    tokens = model.loaded.tokens(text)
    if not tokens:
        raise InputError(f"text {number} has no tokens: nothing to read")
    return tokens


def prompts_of(asked: CompletionRequest, model: Served) -> list[list[int]]:
    """Each prompt as ids."""
    given: Any = asked.prompt
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        given = (given,)
    if len(given) * (asked.n or 1) > MOST_TEXTS:
        raise InputError(f"{len(given)} prompts, {asked.n or 1} times each: at most {MOST_TEXTS} in one request")
    size, made = model.loaded.model.config.vocab_size, []
    for one in given:
        if isinstance(one, str):
            made.append(model.loaded.prompt(whole_characters(one)))
        elif not one or not all(0 <= token < size for token in one):
            raise InputError(f"a prompt of token ids must have some, each from 0 to {size - 1}")
        else:
            made.append(list(one))
    return made


def continuations(asked: CompletionRequest, model: Served, prompts: list[list[int]], context: int) -> list[Continuing]:
    """What the desk is to do; the number of a choice is its place in the list."""
    loaded = model.loaded
    changes = {key: getattr(asked, key) for key in ("temperature", "top_k", "top_p", "min_p")}
    settings = loaded.settings.changed(changes)
    seed = secrets.randbits(62) if asked.seed is None else asked.seed
    sampling = Sampling(settings.temperature, settings.top_k, settings.top_p, settings.min_p, seed)
    stop = texts_of(asked.stop or ())
    made = []
    for ids in prompts:
        room = context - len(ids)
        most = asked.max_tokens or max(1, min(settings.max_tokens, room))
        if most > room:
            raise InputError(f"a prompt of {len(ids)} tokens and max_tokens = {most}: at most {context} in all")
        limit = loaded._limit(most, len(ids))
        for number in range(asked.n or 1):
            row = Row(ids, sampling, limit, number, asked.logprobs or 0)
            text = GrowingText(loaded.tokenizer, ids, stop, asked.logprobs is not None)
            made.append(Continuing(row, text, bool(asked.stream)))
    return made
