"""A search ends when nobody wants its result any more, and only that one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clearhead.decoding.abandon import Abandoned, while_wanted
from clearhead.decoding.load import LoadedModel
from clearhead.decoding_settings import DecodingSettings
from tests.decoding.models import byte_tokenizer, opinionated


def made(preset: str, **changes: Any) -> LoadedModel:
    tokenizer = byte_tokenizer()
    model = opinionated(5, preset, 1.5, ending=-50.0, vocab_size=tokenizer.size, head={"bias": True}, **changes)
    return LoadedModel(model, tokenizer, DecodingSettings(max_tokens=12, max_extra=12), threads=1)


SEARCHES: dict[str, Callable[[], Any]] = {
    "greedy": lambda: made("tiny").translate("the cat", beam_size=1),
    "beam": lambda: made("tiny").translate("the cat", beam_size=3),
    "sampling": lambda: made("llama", kv_heads=1).generate("the cat"),
}


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_ends_at_the_next_step(kind: str) -> None:
    search, asked = SEARCHES[kind], list[int]()

    def wanted() -> bool:
        asked.append(len(asked))
        return len(asked) < 5

    with while_wanted(wanted), pytest.raises(Abandoned):
        search()
    assert len(asked) == 5
    with while_wanted(lambda: True):
        whole = search()
    assert search() == whole  # nobody asks outside


def test_a_search_of_another_thread_goes_on() -> None:
    with while_wanted(lambda: False), ThreadPoolExecutor(1) as pool:
        assert pool.submit(SEARCHES["beam"]).result()[0].tokens
