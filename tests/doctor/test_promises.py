"""Promises that healthy models keep: a tie inside one list, the cache of a prefix, padding that is never said."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.hosts.describe import describe
from tests.doctor.standins import Layer, Small, cached
from tests.doctor.test_conventions import PAD, VOCAB, found, spec


class Listed(nn.Module):
    """Embedding, layers and head in one nn.Sequential; the head is tied to the embedding."""

    def __init__(self, vocab: int = VOCAB, width: int = 24, layers: int = 2, shares: bool = False) -> None:
        super().__init__()
        layer = Layer(width, 3, 0.0)
        self.net = nn.Sequential(
            nn.Embedding(vocab, width), *(Layer(width, 3, 0.0) for _ in range(layers)), nn.Linear(width, vocab)
        )
        self.net[-1].weight = self.net[0].weight
        for number in range(layers if shares else 0):
            self.net[1 + number].qkv = layer.qkv

    def forward(self, tokens: Tensor) -> Tensor:
        distance = torch.arange(tokens.size(1))[:, None] - torch.arange(tokens.size(1))
        mask = torch.zeros(distance.shape).masked_fill(distance < 0, -math.inf)
        x = self.net[0](tokens)
        for layer in list(self.net)[1:-1]:
            x, _ = layer(x, mask)
        return self.net[-1](x)


@pytest.mark.parametrize("shares", [False, True])
def test_a_tie_inside_one_list_is_no_layer_that_runs_twice(shares: bool) -> None:
    def build(vocab: int = VOCAB, width: int = 24, layers: int = 2) -> Listed:
        return Listed(vocab, width, layers, shares)

    wanted: dict[str, str] = {"parameters.shared": "error"} if shares else {}
    assert found(spec(build=build, tied=True), "parameters") == wanted


def forgets(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """Keeps only the keys of the last tokens, once the prefix is read."""
    logits, kept = model.step(tokens, None, cache)
    return logits, [(k[:, :, -5:], v[:, :, -5:]) for k, v in kept]


@pytest.mark.parametrize(("way", "wanted"), [(cached, {}), (forgets, {"cache.differs": "error"})])
def test_the_cache_of_a_prefix_gets_the_prefix_whole(way: Any, wanted: dict[str, str]) -> None:
    def build(vocab: int = VOCAB) -> Small:
        return Small(vocab, prefix=4)

    def generate(model: Small, tokens: Tensor, count: int) -> Tensor:
        cache: Any = None
        given = tokens
        for _ in range(count):
            logits, cache = model.step(given, None, cache)
            given = logits[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, given], dim=1)
        return tokens

    described = spec(build=build, forward=lambda model, tokens: model(tokens), prefix=4, cached=way, generate=generate)
    reordering = {"reorder": lambda cache, rows: [(k[rows], v[rows]) for k, v in cache]}
    assert found(doctor.CausalLM(**{**vars(described), **reordering}), "cache", "generate") == wanted


def test_a_prefix_model_that_is_trained_on_what_follows_is_healthy() -> None:
    report = doctor.check(describe("folded", "prefix"), only=["cache", "generate", "loss"])
    assert report.findings == ()
    assert set(report.passed) == {"cache", "generate", "loss"}


@pytest.mark.parametrize("pad", [PAD, None])
@pytest.mark.parametrize("how", ["likeliest", "second"])
def test_a_generator_need_not_say_padding(pad: int | None, how: str) -> None:
    def build(vocab: int = VOCAB, max_length: int = 640) -> Small:
        model = Small(vocab, max_length=max_length)
        with torch.no_grad():
            model.head.bias[PAD] = 20.0  # the likeliest everywhere
        return model

    def generate(model: Small, tokens: Tensor, count: int) -> Tensor:
        for _ in range(count):
            logits = model(tokens[:, -len(model.table) :])[:, -1].clone()
            logits[:, PAD] = -math.inf
            ranked = logits.topk(2).indices
            tokens = torch.cat([tokens, ranked[:, int(how == "second")][:, None]], dim=1)
        return tokens

    wanted: dict[str, str] = {} if how == "likeliest" else {"generate.not-greedy": "error"}
    assert found(spec(build=build, generate=generate, pad=pad), "generate", "context") == wanted
