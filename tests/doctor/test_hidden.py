"""Bugs that something else hides: a clip, a lucky choice, a kernel that forgives, a schedule that looks meant."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.examine import check
from clearhead.doctor.generating import as_logits, unlike
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.mutants import load, table

HIDDEN = {
    "p61": ("update", "update.length"),  # a clip gives the scaled gradient its length
    "p64": ("update", "update.length"),
    "p36": ("dropout", "dropout.differs"),  # no Bernoulli draw to be seen
    "p37": ("dropout", "dropout.off"),
    "u40": ("dropout", "dropout.off"),
    "p43": ("generate", "generate.not-greedy"),  # the most likely token is the same by luck
    "p46": ("padded", "padded.generate"),
    "u14": ("finite", "finite.padding"),  # the fused kernel makes zeros of it, the written-out path does not
    "u64": ("decay", "decay.level"),
    "f56": ("decay", "decay.unfinished"),
    "rb21": ("bend", "bend.missing"),  # a product of two linear maps is not linear
    "rb35": ("padded", "padded.cache"),  # padding is seldom met in the past of a target
    "rb40": ("generate", "generate.not-greedy"),  # where a translation begins with one token, the first is the last
}


@pytest.mark.parametrize("id", HIDDEN)
def test_hidden_bug_is_found_and_named(id: str) -> None:
    mutant, (probe, finding) = table()[id], HIDDEN[id]
    report = check(describe(mutant.host, mutant.variant, load(mutant)), only=[probe])
    assert finding in {found.id for found in report.findings}
    assert set(mutant.causes) & {cause.id for cause in report.causes[:3]}
    assert check(describe(mutant.host, mutant.variant), only=[probe]).findings == ()


class Idle(nn.Module):
    """One token's embedding, dropped out by a module or, for `wrong`, by none: the module is there all the same."""

    def __init__(self, vocab: int, width: int, dropout: float, wrong: bool) -> None:
        super().__init__()
        self.embed, self.head, self.wrong = nn.Embedding(vocab, width), nn.Linear(width, vocab), wrong
        self.early, self.late = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.early(self.embed(tokens))
        return self.head(x) if self.wrong else self.head(self.late(x))


class Shared(Idle):
    """The idle module's place is taken by functional dropout, as where a fused kernel drops by itself."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(nn.functional.dropout(self.early(self.embed(tokens)), self.late.p, self.training))


@pytest.mark.parametrize(("kind", "wrong", "found"), [(Idle, True, True), (Idle, False, False), (Shared, True, False)])
def test_dropout_that_was_made_and_never_called(kind: type[Idle], wrong: bool, found: bool) -> None:
    spec = doctor.Encoder(
        build=lambda vocab, width, dropout: kind(vocab, width, dropout, wrong),
        forward=lambda model, tokens: model(tokens),
    )
    messages = [finding.message for finding in check(spec, only=["dropout"]).findings]
    assert [message.startswith("late was made") for message in messages] == [True] * found


WARM = 40


@pytest.mark.parametrize(
    ("name", "rate", "finding"),
    [
        ("a line, then the inverse root", lambda n: min((n + 1) / WARM, (WARM / (n + 1)) ** 0.5), None),
        ("a cosine up", lambda n: 0.5 - 0.5 * torch.cos(torch.tensor(torch.pi * min(1, (n + 1) / WARM))).item(), None),
        ("a square", lambda n: min(((n + 1) / WARM) ** 2, (WARM / (n + 1)) ** 0.5), "schedule.power"),
        ("a leap", lambda n: 0.5 * (n + 1) / WARM if n < WARM else (WARM / (n + 1)) ** 0.5, "decay.jump"),
    ],
)
def test_shapes_of_a_warmup(name: str, rate: Callable[[int], float], finding: str | None) -> None:
    spec = replace(describe("encoder", "plain"), learning_rate=rate, warmup=WARM if name == "a leap" else WARM - 1)
    assert [found.id for found in check(spec, only=["schedule", "decay"]).findings] == ([finding] if finding else [])


def test_logits_are_compared_up_to_temperature_and_constant() -> None:
    logits = torch.randn(31, dtype=torch.float64)
    assert unlike(as_logits((logits / 0.3).softmax(-1)[None])[0], logits) < 1e-9
    assert unlike(logits.masked_fill(logits < logits.topk(9).values[-1], -torch.inf), logits) < 1e-9
    moved = logits.clone()
    moved[3] += 0.1
    assert unlike(moved, logits) > 1e-2
