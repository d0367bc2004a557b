"""Layers in one tensor, gradients that are only half there, caches in any order: what the third blind round missed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.attended import Attended, first_difference
from clearhead.doctor.examine import check
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.layered import kin, parts, silenced, stacks
from clearhead.doctor.mutants import load, table
from clearhead.doctor.subject import Subject
from tests.doctor.standins import Small
from tests.doctor.test_conventions import found, spec

# bug: the finding, and whether it is an error
MISSED = {
    "pb16": ("parameters.unused-rows", "error"),  # heads of one layer's row of a stack
    "pb38": ("parameters.unused", "error"),
    "pb40": ("residual.missing", "error"),
    "pb41": ("bend.missing", "error"),
    "pb45": ("parameters.detached", "error"),
    "pb47": ("parameters.identical", "error"),
    "pb60": ("optimizer.decay", "warning"),
    "hb05": ("finite.values", "error"),  # in float64 nothing but NaN, which is equal to itself
    "rb14": ("position.collide", "error"),  # an encoder for which everything ahead is equally far
    "rb16": ("position.layers", "warning"),
    "hb47": ("bend.missing", "warning"),  # a norm is no linear map, and no bend either
    "hb39": ("padded.cache", "error"),
    "hb61": ("invariance.ignored", "warning"),
}
UNNAMED = {
    "pb02": "future", "pb18": "position", "pb20": "position", "pb22": "position", "pb23": "cache", "pb74": "packed",
    "hb41": "generate", "hb64": "invariance", "pb70": "update",
}  # fmt: skip


@pytest.mark.parametrize("id", MISSED)
def test_what_was_missed_is_found_and_named(id: str) -> None:
    mutant, (wanted, severity) = table()[id], MISSED[id]
    probe = wanted.partition(".")[0]
    report = check(describe(mutant.host, mutant.variant, load(mutant)), only=[probe])
    assert severity in {f.severity for f in report.findings if f.id == wanted}
    assert set(mutant.causes) & {cause.id for cause in report.causes[:3]}
    assert check(describe(mutant.host, mutant.variant), only=[probe]).findings == ()


@pytest.mark.parametrize("id", UNNAMED)
def test_what_was_not_named_is_named(id: str) -> None:
    mutant = table()[id]
    report = check(describe(mutant.host, mutant.variant, load(mutant)), only=[UNNAMED[id]])
    assert set(mutant.causes) & {cause.id for cause in report.causes[:3]}, [cause.id for cause in report.causes]
    assert check(describe(mutant.host, mutant.variant), only=[UNNAMED[id]]).findings == ()


def test_a_row_of_a_stack_is_a_parameter_of_its_layer() -> None:
    subject = Subject(describe("parallel", "plain"))
    stacked, model = stacks(subject), subject.model()
    queries = model.get_parameter("params.wq")
    assert {"params.wq", "params.ln1_gain"} <= stacked
    assert "params.embed" not in stacked
    names = [part.name for part in parts(model, stacked)]
    assert names.count("params.wq[0]") == names.count("params.wq[1]") == names.count("params.embed") == 1
    assert kin(subject)["params.wq[0]"] == kin(subject)["params.wq[1]"] != kin(subject)["params.wk[0]"]
    before = queries.detach().clone()
    with silenced(model, ["params.wq[1]"], stacked):
        assert not queries[1].any()
        assert torch.equal(queries[0], before[0])
    assert torch.equal(queries, before)


def test_other_models_have_no_stacks() -> None:
    subject = Subject(spec())
    assert stacks(subject) == set()
    assert kin(subject)["layers.0.norm1.weight"] == kin(subject)["layers.1.norm1.weight"]
    assert kin(subject)["layers.0.norm1.weight"] != kin(subject)["layers.0.norm2.weight"]


class Leaky(Small):
    """Some of the gradient does not come through."""

    def __init__(self, vocab: int = 61, way: str = "") -> None:
        super().__init__(vocab)
        self.way = way

    def forward(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        table = self.embedding.weight
        if self.way == "stream":
            with torch.no_grad():
                cut = super().forward(tokens, real)
            return 0.5 * (super().forward(tokens, real) + cut) * (1 + 0.1 * table.mean())
        if self.way == "scaled":  # as GLM does, for calmer training
            self.embedding.register_forward_hook(lambda module, given, out: 0.1 * out + 0.9 * out.detach())
        out = super().forward(tokens, real)
        self.embedding._forward_hooks.clear()
        return out


@pytest.mark.parametrize(
    ("way", "wanted"),
    [("", {}), ("stream", {"parameters.detached": "error"}), ("scaled", {"parameters.detached": "warning"})],
)
def test_a_gradient_is_held_against_the_slope(way: str, wanted: dict[str, str]) -> None:
    def build(vocab: int = 61) -> Leaky:
        return Leaky(vocab, way)

    assert found(spec(build=build), "parameters") == wanted


class Experts(Small):
    """Each token goes to one of many small experts: most get none of a few tokens."""

    def __init__(self, vocab: int = 61, layers: int = 2, idle: bool = False) -> None:
        super().__init__(vocab, layers=layers)
        self.idle = idle
        self.choose = nn.Linear(24, 24)
        self.experts = nn.ModuleList(nn.ModuleList(nn.Linear(24, 61) for _ in range(24)) for _ in range(layers))

    def forward(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        out, x = super().forward(tokens, real), self.embedding(tokens)
        scores = self.choose(x).softmax(dim=-1)
        layers: list[Any] = list(self.experts)
        for experts in layers[: 1 if self.idle else None]:
            for number, expert in enumerate(experts):
                chosen = (scores.argmax(dim=-1) == number)[..., None]
                out = out + chosen * scores[..., number : number + 1] * expert(x)
        return out


@pytest.mark.parametrize("idle", [False, True])
def test_an_expert_without_tokens_is_not_left_out(idle: bool) -> None:
    def build(vocab: int = 61, layers: int = 2) -> Experts:
        return Experts(vocab, layers, idle)

    report = check(spec(build=build), only=["parameters"])
    assert [f.id for f in report.errors] == (["parameters.unused"] if idle else [])


def attended(keys: Tensor, values: Tensor, seen: list[bool], last: float = 1.0) -> Attended:
    weights = torch.tensor(seen).double() * torch.tensor([1.0] * (len(seen) - 1) + [last])
    return Attended(torch.ones(2, 1, 4), keys, values, weights.expand(2, -1))


@pytest.mark.parametrize(
    ("order", "rows", "seen", "wanted"),
    [
        ([0, 1, 2], 3, [True] * 3, ("same", "same", False)),
        ([2, 0, 1], 3, [True] * 3, ("same", "same", True)),  # a ring: keys with their values
        ([0, 1, 2], 3, [True, False, True], ("same", "same", False)),  # kept, and hidden
        ([0, 1], 2, [True] * 2, ("fewer", "fewer", False)),  # not kept
    ],
)
def test_a_cache_is_compared_by_what_is_looked_at(order: list[int], rows: int, seen: list[bool], wanted: Any) -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    full = attended(keys, values, [True] * 3)
    result = first_difference([full], [attended(keys[:, order], values[:, order], seen)], 1, 1)
    assert (result["keys"], result["values"], result["order"]) == wanted
    swapped = attended(keys[:, [1, 0, 2]], values, [True] * 3)  # values are not their keys' any more
    assert first_difference([full], [swapped], 1, 1)["keys"] == "order"
    biased = first_difference([full], [attended(keys, values, [True] * 3, last=0.5)], 1, 1)
    assert (biased["keys"], biased["weighed"], biased["more"]) == ("same", False, 0)


@pytest.mark.parametrize(("rate", "wanted"), [(0.1, {}), (None, {"mode.no-dropout": "error"})])
def test_dropout_that_is_asked_for_acts(rate: float | None, wanted: dict[str, str]) -> None:
    def build(vocab: int = 61, dropout: float = 0.1) -> Small:
        return Small(vocab, dropout=dropout if rate else 0.0)

    assert found(spec(build=build), "mode") == wanted


def test_a_tagger_may_go_by_the_padding_of_its_tokens() -> None:
    def loss(model: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(model(tokens, tokens != 0).transpose(1, 2), labels, reduction="none")
        return losses[tokens != 0].mean()

    def build(vocab: int = 61) -> Small:
        return Small(vocab, causal=False)

    def forward(model: nn.Module, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        return model(tokens, real)

    report = check(doctor.Encoder(build=build, forward=forward, loss=loss, pad=0), only=["loss", "invariance"])
    assert report.errors == ()


@pytest.mark.parametrize(("reads", "wanted"), [(True, {}), (False, {"invariance.labels": "error"})])
def test_the_labels_of_an_encoder_matter(reads: bool, wanted: dict[str, str]) -> None:
    def loss(model: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(tokens).transpose(1, 2), labels if reads else tokens)

    def build(vocab: int = 61) -> Small:
        return Small(vocab, causal=False)

    described = doctor.Encoder(build=build, forward=lambda model, tokens: model(tokens), loss=loss)
    assert found(described, "invariance") == wanted
