"""What outlasts a pass, and what lies between sub-layers: each probe finds its planted bugs and knows what is meant."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.draws import Draws
from clearhead.doctor.examine import check
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.layered import numbered
from clearhead.doctor.mutants import load, table
from clearhead.doctor.probes.decay import asked

MUST_FIND = {
    "dropout": ("y01", "y02", "fn29"),
    "restore": ("y03", "y04", "y05", "y06", "y07"),
    "copy": ("y08", "y09", "y10", "y11"),
    "padded": ("y12", "y13", "y14", "fn20"),
    "context": ("y15", "y16", "y17"),
    "decay": ("y18", "y19", "y20", "fn46", "fn47", "f56", "u63"),
    "padding_row": ("y21", "y22"),
    "bend": ("z01", "z02"),
    "residual": ("z03", "z04", "z05", "z06", "z10", "z11", "id18"),
    "norm": ("z12", "z13"),
    "generate": ("z14", "z15", "z16"),
    "attention": ("sf02", "fn01"),
    "parameters": ("sf25", "fn11", "id24", "sf27", "u76"),
    "update": ("f61",),
    "packed": ("fn07",),
    "cache": ("fn19", "fn31", "fn32", "fn33"),
    "loss": ("sf36", "sf38", "id39", "id40", "id41"),
    "padding": ("sf05", "id02", "id05", "fn05", "fn06"),
    "cross": ("z07", "z08", "z09"),
}
CASES = [(probe, id) for probe, ids in MUST_FIND.items() for id in ids]
# two bugs of each probe in every run, all of them in the long one
SOME = {(probe, id) for probe, ids in MUST_FIND.items() for id in ids[:2]}
MARKED = [pytest.param(*case, marks=[] if case in SOME else [pytest.mark.long]) for case in CASES]
# what may be meant by somebody is not an error
WARNED = {"y04", "y16", "y20", "y22", "z09", "z12", "z13", "fn29", "fn46", "fn47", "f56", "u63"}
QUIET = sorted({(probe, table()[id].host, table()[id].variant) for probe, id in CASES if probe != "padding_row"})


@pytest.mark.parametrize(("probe", "id"), MARKED)
def test_probe_finds_its_bug_and_names_it(probe: str, id: str) -> None:
    mutant = table()[id]
    report = check(describe(mutant.host, mutant.variant, load(mutant)), only=[probe])
    assert {finding.severity for finding in report.findings} == {"warning" if id in WARNED else "error"}
    assert set(mutant.causes) & {cause.id for cause in report.causes[:3]}


@pytest.mark.parametrize(("probe", "host", "variant"), QUIET)
def test_probe_is_quiet_about_the_healthy_host(probe: str, host: str, variant: str) -> None:
    assert check(describe(host, variant), only=[probe]).passed == (probe,)


@dataclass
class Choices:
    """How the small model below is built; each default is healthy."""

    attention_rate: float | None = None  # a rate of its own
    generate_masks: bool = True
    rank: int = 0  # a factorised head
    middle: int = 0  # a second matrix before the head


class Small(nn.Module):
    """A language model that knows padding by its token, in one layer of plain attention and one feed-forward."""

    def __init__(self, vocab: int, width: int, layers: int, dropout: float, choices: Choices) -> None:
        super().__init__()
        self.choices = choices
        self.embedding = nn.Embedding(vocab, width, padding_idx=0)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        between = choices.rank or choices.middle
        self.before = nn.Linear(width, between) if between else nn.Identity()
        self.head = nn.Linear(between or width, vocab)
        self.rate = dropout

    def forward(self, tokens: Tensor, masked: bool = True) -> Tensor:
        length = tokens.size(1)
        mask = torch.ones(length, length, dtype=torch.bool).tril()[None]
        if masked:
            mask = mask & (tokens != 0)[:, None, :]
        mask = mask | torch.eye(length, dtype=torch.bool)
        rate = self.rate if self.choices.attention_rate is None else self.choices.attention_rate
        x = self.embedding(tokens)
        for qkv, up, down in zip(self.qkv, self.up, self.down, strict=True):
            q, k, v = qkv(x).chunk(3, dim=-1)
            weights = (q @ k.transpose(1, 2) / q.size(-1) ** 0.5).masked_fill(~mask, -1e9).softmax(dim=-1)
            x = x + F.dropout(weights, rate, self.training) @ v
            x = x + F.dropout(down(F.relu(up(x))), self.rate, self.training)
        return self.head(self.before(x))

    def generate(self, tokens: Tensor, count: int) -> Tensor:
        for _ in range(count):
            logits = self(tokens, masked=self.choices.generate_masks)
            tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
        return tokens


def small(**choices: Any) -> doctor.CausalLM:
    def build(vocab: int = 61, width: int = 24, layers: int = 2, dropout: float = 0.1) -> Small:
        return Small(vocab, width, layers, dropout, Choices(**choices))

    return doctor.CausalLM(
        build=build,
        forward=lambda model, tokens: model(tokens),
        generate=lambda model, tokens, count: model.generate(tokens, count),
        pad=0,
        positions="none",
    )


def found(spec: doctor.CausalLM, *probes: str) -> dict[str, str]:
    return {finding.id: finding.severity for finding in check(spec, only=probes).findings}


def test_the_small_model_is_healthy() -> None:
    report = check(small(), only=[*MUST_FIND])
    assert report.findings == ()
    assert {"dropout", "restore", "copy", "padded", "padding_row", "bend", "residual"} <= set(report.passed)


def test_padded_prompts_are_continued_as_they_are_alone() -> None:
    assert found(small(generate_masks=False), "padded") == {"padded.generate": "error"}
    # the same generation, but here the description makes the mask of the full pass
    outside = replace(small(), generate=lambda model, tokens, count: model.generate(tokens, count),
                      forward=lambda model, tokens: model.forward(tokens))  # fmt: skip
    assert found(outside, "padded") == {}
    broken = replace(small(generate_masks=False), forward=lambda model, tokens: model.forward(tokens))
    assert found(broken, "padded") == {"padded.generate": "warning"}


def test_generate_with_a_mask_is_asked_with_it() -> None:
    def generate(model: Any, tokens: Tensor, count: int, real: Tensor | None = None) -> Tensor:
        return model.generate(tokens if real is None else tokens.masked_fill(~real, 0), count)

    def deaf(model: Any, tokens: Tensor, count: int, real: Tensor | None = None) -> Tensor:
        return model.generate(tokens.masked_fill(tokens == 0, 1), count)

    def forward(model: Any, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        return model(tokens if real is None else tokens.masked_fill(~real, 0))

    spec = replace(small(), pad=None, forward=forward, generate=generate)
    assert found(spec, "padded") == {}
    assert found(replace(spec, generate=deaf), "padded") == {"padded.generate": "error"}


def test_a_rate_that_is_a_choice_of_the_builder_is_only_a_warning() -> None:
    assert found(small(attention_rate=0.2), "dropout") == {"dropout.stays": "error"}

    def with_its_own(
        vocab: int = 61, width: int = 24, layers: int = 2, dropout: float = 0.1, attention_drop: float = 0.2
    ) -> Small:
        return Small(vocab, width, layers, dropout, Choices(attention_rate=attention_drop))

    assert found(replace(small(), build=with_its_own), "dropout") == {"dropout.stays": "warning"}

    def deaf(vocab: int = 61, width: int = 24, layers: int = 2, dropout: float = 0.1) -> Small:
        return Small(vocab, width, layers, 0.1, Choices())

    assert found(replace(small(), build=deaf), "dropout") == {"dropout.stays": "warning"}


def test_a_factorised_map_is_no_missing_bend() -> None:
    assert found(small(rank=5), "bend") == {}
    assert found(small(middle=24), "bend") == {"bend.missing": "warning"}
    assert found(small(middle=40), "bend") == {"bend.missing": "error"}


def test_a_schedule_without_a_declared_end_is_only_warned_about() -> None:
    spec = replace(small(), learning_rate=lambda step: 1 - step / 1000)
    assert found(spec, "decay") == {"decay.negative": "warning"}
    assert found(replace(spec, steps=1001), "decay") == {"decay.beyond": "warning"}  # fine until it is prolonged
    clamped = replace(spec, learning_rate=lambda step: max(0.0, 1 - step / 1000), steps=1001)
    assert found(clamped, "decay") == {}
    assert found(replace(spec, steps=1100), "decay") == {"decay.negative": "error"}
    assert asked(100, 3000)[-2:] == [2998, 2999]


def test_draws_at_their_mean_change_nothing() -> None:
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True).double()
    evaluated = layer.eval()(x)
    with Draws(at_mean=True) as draws:
        trained = layer.train()(x)
    assert torch.allclose(evaluated, trained, atol=1e-12)
    assert {draw.rate for draw in draws.seen} == {0.3}
    assert len(draws.seen) == 4
    assert not torch.allclose(evaluated, layer(x), atol=1e-3)


def test_layers_are_told_by_the_numbers_that_grow() -> None:
    shallow = {"embed.0.weight", "blocks.0.mlp.0.w", "blocks.0.mlp.2.w"}
    deep = [*sorted(shallow), "blocks.1.mlp.0.w", "blocks.1.mlp.2.w"]
    assert numbered(deep, shallow) == {
        ("blocks.", 0): ["blocks.0.mlp.0.w", "blocks.0.mlp.2.w"],
        ("blocks.", 1): ["blocks.1.mlp.0.w", "blocks.1.mlp.2.w"],
    }
