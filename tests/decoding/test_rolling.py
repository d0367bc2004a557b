"""Texts that join and leave a batch between steps become what they become alone."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from clearhead.decoding.load import LoadedModel
from clearhead.decoding.rolling import RollingBatch, Row
from clearhead.decoding.sample import Sampling
from clearhead.decoding_settings import DecodingSettings
from tests.decoding.models import byte_tokenizer, opinionated

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "rotary, shared heads": ("llama", {"kv_heads": 1, "head": {"bias": True}}),
    "learned": ("gpt2", {"positions": {"kind": "learned", "max_length": 64}, "head": {"bias": True}}),
    "alibi": ("gpt2", {"positions": {"kind": "alibi"}, "head": {"bias": True}}),
    "sinusoidal": ("gpt2", {"positions": {"kind": "sinusoidal"}, "head": {"bias": True}}),
    "a window": ("llama", {"window": 4, "kv_heads": 2, "head": {"bias": True}}),
}
HOW = [
    Sampling(0.0),
    Sampling(0.9, seed=3),
    Sampling(1.3, top_k=9, seed=3),
    Sampling(1.0, top_p=0.8, seed=-5),
    Sampling(0.7, min_p=0.02, seed=11),
]


def made(shape: str, kernels: str = "fused", **settings: Any) -> LoadedModel:
    preset, changes = SHAPES[shape]
    tokenizer = byte_tokenizer()
    model = opinionated(5, preset, 1.5, ending=1.0, vocab_size=tokenizer.size, kernels=kernels, **changes)
    return LoadedModel(model, tokenizer, DecodingSettings(**settings), documents="line", threads=1)


def rows(loaded: LoadedModel, count: int) -> list[Row]:
    chance = random.Random(1)
    texts = ["", "the", "the cat sat on the mat", "x" * 30, "dog and dog", "日本"]
    return [
        Row(loaded.prompt(texts[i % 6]), HOW[i % 5], chance.randrange(1, 25), i % 3, likeliest=i % 4)
        for i in range(count)
    ]


def alone(loaded: LoadedModel, row: Row) -> tuple[list[int], list[float], list[Any], bool]:
    """By itself from beginning to end."""
    batch, log_probs, likeliest = RollingBatch(loaded), [], []
    row = replace(row, written=[])
    found = batch.step([row])
    while True:
        log_probs.append(found[0].log_prob)
        likeliest.append(found[0].likeliest)
        if found[0].last:
            return row.written, log_probs, likeliest, found[0].ended
        found = batch.step()


@pytest.mark.parametrize("kernels", ["fused", "plain"])
@pytest.mark.parametrize("shape", SHAPES)
def test_who_joins_and_leaves_changes_nothing(shape: str, kernels: str) -> None:
    """In float64, so that rounding cannot turn a choice: a few rows come at each step, one of them goes too early."""
    loaded = made(shape, kernels)
    everyone = rows(loaded, 24)
    waiting, batch, chance = list(everyone), RollingBatch(loaded), random.Random(2)
    said: dict[Row, list[Any]] = {row: [] for row in everyone}
    dropped, longest = None, 0
    while waiting or batch.rows:
        coming = [waiting.pop(0) for _ in range(min(len(waiting), chance.choice((0, 0, 1, 3))))]
        leaving = []
        if dropped is None and len(batch.rows) > 4:
            dropped = batch.rows[2]
            leaving = [dropped]
        for one in batch.step(coming, leaving):
            said[one.row].append(one)
        longest = max(longest, len(batch.rows))
    assert longest > 4
    assert dropped is not None
    for row in everyone:
        written, log_probs, likeliest, ended = alone(loaded, row)
        count = len(said[row])
        assert row.written == written[: len(row.written)]
        assert [one.log_prob for one in said[row]] == pytest.approx(log_probs[:count], abs=1e-9)
        assert [[t for t, _ in one.likeliest] for one in said[row]] == [[t for t, _ in x] for x in likeliest[:count]]
        if row is not dropped:
            assert (row.written, said[row][-1].ended, said[row][-1].last) == (written, ended, True)


@pytest.mark.parametrize("settings", [{}, {"min_length": 3}, {"no_repeat_ngram": 2}, {"repetition_penalty": 1.7}])
def test_the_words_are_those_of_generate(settings: dict[str, Any]) -> None:
    loaded = made("rotary, shared heads", max_tokens=12, **settings)
    batch = RollingBatch(loaded)
    everyone = [Row(loaded.prompt("the cat"), how, 12, number) for how in HOW for number in range(2)]
    batch.step(everyone[:3])
    batch.step(everyone[3:])
    while batch.rows:
        batch.step()
    for at, how in enumerate(HOW):
        changes = {key: getattr(how, key) for key in ("temperature", "top_k", "top_p", "min_p")}
        found = loaded.generate("the cat", seed=how.seed, samples=2, **changes)
        assert [one.tokens for one in found] == [row.written for row in everyone[2 * at : 2 * at + 2]]


@pytest.mark.parametrize("kernels", ["fused", "plain"])
def test_what_nobody_needs_any_more_is_cut_off(kernels: str) -> None:
    """A batch that never empties: the cache stays as long as the rows that are there."""
    loaded = made("rotary, shared heads", kernels)
    batch = RollingBatch(loaded)
    long = Row(loaded.prompt("x" * 200), Sampling(0.0), 1000)
    batch.step([long])
    for _ in range(60):
        batch.step([Row(loaded.prompt("the"), Sampling(1.0, seed=1), 3)], leaving=[long])
        assert batch.steps is None or batch.steps.cache.length < 12  # type: ignore[attr-defined]


def test_an_empty_batch_does_nothing() -> None:
    batch = RollingBatch(made("learned"))
    assert batch.step() == []
    row = Row([1, 7], Sampling(0.0), 5)
    batch.step([row])
    assert batch.step(leaving=[row]) == []
    assert torch.is_tensor(batch.chosen)


def test_other_likely_tokens_are_told_only_to_who_asks() -> None:
    batch = RollingBatch(made("learned"))
    found = batch.step([Row([1, 7], Sampling(0.0), 5), Row([1, 7], Sampling(0.0), 5, likeliest=2)])
    assert [len(one.likeliest) for one in found] == [0, 2]
