"""What must hold of every model, for every combination of choices: checked at lengths up to 129 for all of them, at
long ones for a covering selection here and for the rest in `make test-long`.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.model.cases import CASES, CAUSAL, CHOICES, Case, Texts, alone, built, covering, pad, run
from tests.model.helpers import close, normal, tokens
from tests.model.helpers import model as fresh

LADDER = (1, 2, 127, 128, 129)
LONG = (511, 512, 513, 1024, 2049)


def everywhere(test: Callable[..., None]) -> Callable[..., None]:
    """Every combination, at each step of the ladder and at lengths that hypothesis draws."""
    for length in LADDER:
        test = example(length=length, seed=length)(test)
    test = given(length=st.integers(1, 129), seed=st.integers(0, 2**20))(settings(max_examples=1)(test))
    return pytest.mark.parametrize("case", CASES, ids=str)(test)


def two_texts(length: int, seed: int) -> Texts:
    """One as long as it says, one up to that."""
    return Texts.make([length, random.Random(seed).randint(1, length)], seed)


def same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for mine, truth in zip(found, wanted, strict=True):
        close(mine, truth, 1e-10)


def no_future(model: Any, texts: Texts, side: str, seed: int) -> None:
    """Neither a change nor a gradient goes from a later position to an earlier one: exactly zero, not nearly."""
    ids, real = pad(texts.targets, side, width=max(map(len, texts.targets)) + 1)
    now = random.Random(seed).randrange(ids.size(1) - 1)
    embedded: list[Tensor] = []
    hook = model.embedding.register_forward_hook(lambda module, inputs, output: embedded.append(output))

    def logits(ids: Tensor) -> Tensor:
        if model.config.kind == "decoder":
            return model(ids, real)
        source, seen = pad(texts.sources, side)
        return model(source, ids, seen, real)

    before = logits(ids)
    hook.remove()
    changed = ids.clone()
    changed[:, now + 1 :] = (changed[:, now + 1 :] + 1 + seed % 27) % 29
    # with gradients as before: the kernel that can train a bias rounds otherwise than the one that cannot
    assert torch.equal(before[:, : now + 1], logits(changed)[:, : now + 1])
    early = before[:, : now + 1]
    gradient = torch.autograd.grad((early * normal(*early.shape)).sum(), embedded[-1])[
        0
    ]  # the target, after the source
    assert torch.count_nonzero(gradient[:, now + 1 :]) == 0
    if real is None or bool(real[:, : now + 1].any()):
        assert torch.count_nonzero(gradient[:, : now + 1]) > 0


def padding_changes_nothing(model: Any, texts: Texts, truth: list[Tensor], side: str) -> None:
    """A row among others, padded to their length, is the row alone."""
    same(run(model, texts, side), truth)


def prefix_is_the_same(model: Any, texts: Texts, truth: list[Tensor], side: str, seed: int) -> None:
    """What comes after was never needed: cutting it off changes nothing before."""
    draw = random.Random(seed)
    cut = [draw.randint(1, len(row)) for row in texts.targets]
    shorter = Texts([row[:end] for row, end in zip(texts.targets, cut, strict=True)], texts.sources)
    same(run(model, shorter, side), [row[:end] for row, end in zip(truth, cut, strict=True)])


def cache_is_the_full_pass(model: Any, texts: Texts, truth: list[Tensor], side: str, seed: int) -> None:
    """In chunks and one by one; on the way rows are swapped, dropped and doubled, as beam search does."""
    total, draw = max(map(len, texts.targets)), random.Random(seed)
    chunks: list[int] = []
    while (rest := total - sum(chunks)) > 0:
        # few and large at first, then single tokens, so that long texts stay cheap
        chunks.append(min(rest, draw.choice((1, 1, 2, 3)) if rest < 7 else draw.randint(1, rest)))
    if len(chunks) == 1:
        same(run(model, texts, side, chunks), truth)
    else:
        rows = [draw.randrange(len(truth)) for _ in range(draw.randint(2, len(truth) + 1))]
        same(run(model, texts, side, chunks, (draw.randrange(1, len(chunks)), rows)), [truth[i] for i in rows])


def everything(model: Any, texts: Texts, side: str, seed: int) -> None:
    no_future(model, texts, side, seed)
    truth = alone(model, texts)
    padding_changes_nothing(model, texts, truth, side)
    prefix_is_the_same(model, texts, truth, side, seed)
    cache_is_the_full_pass(model, texts, truth, side, seed)


@pytest.mark.parametrize("kind", CAUSAL)
@everywhere
def test_causal_models_up_to_129(kind: str, case: Case, length: int, seed: int) -> None:
    everything(built(kind, case), two_texts(length, seed), case.side, seed)


@everywhere
def test_encoder_up_to_129(case: Case, length: int, seed: int) -> None:
    model, texts = built("encoder", case), two_texts(length, seed)
    padding_changes_nothing(model, texts, alone(model, texts), case.side)


# ---- long ----------------------------------------------------------------------------------------------------------

COVERING = [
    (row.pop("kind"), row.pop("length"), Case(**row)) for row in covering({"length": LONG, **CHOICES, "kind": CAUSAL})
]
REST = [(kind, length, case) for kind in CAUSAL for length in LONG for case in CASES]


@pytest.mark.parametrize(
    ("kind", "length", "case"),
    [
        *COVERING,
        *(pytest.param(*row, marks=pytest.mark.long) for row in REST if row not in COVERING),
    ],
    ids=str,
)
def test_long(kind: str, length: int, case: Case) -> None:
    """One layer, two heads and few rows: the full scores of a plain pass at 2,049 fill memory quickly."""
    texts = Texts.make([length - 2, length] if length < 1000 else [length - 1], seed=length)
    everything(built(kind, case, heads=2, layers=1), texts, case.side, seed=length)


# ---- one by one, batch mates, windows ------------------------------------------------------------------------------

UNPADDED = [case for case in CASES if case.side == "right"]  # where no row is padded, sides are alike


@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize("case", [Case(**row) for row in covering(CHOICES)], ids=str)
def test_cache_token_by_token(case: Case, kind: str) -> None:
    """129 single steps: room doubles, and the fused kernels change from few keys to many on the way."""
    model, texts = built(kind, case), Texts.make([129, 70, 1], seed=3)
    same(run(model, texts, case.side, [1] * 129), alone(model, texts))


@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize("case", UNPADDED, ids=str)
def test_cache_in_chunks_without_padding(case: Case, kind: str) -> None:
    """No mask but the causal one, which kernels like to draw for themselves: chunks must see all that came before."""
    model, texts = built(kind, case), Texts.make([129, 129], seed=5)
    same(run(model, texts, chunks=[1, 49, 30, 1, 48]), alone(model, texts))


@pytest.mark.parametrize("kind", [*CAUSAL, "encoder"])
@pytest.mark.parametrize("case", UNPADDED, ids=str)
@pytest.mark.parametrize("size", [(3, 7, 5), (5, 5, 5)], ids=str)
def test_row_does_not_depend_on_its_batch_mates(size: tuple[int, int, int], case: Case, kind: str) -> None:
    """Batch, length and heads are three primes, so that no mix-up of dimensions fits; or one, so that each does."""
    rows, length, heads = size
    model, texts = built(kind, case, heads), Texts.make([length] * rows, seed=rows)
    truth = alone(model, texts)
    same(run(model, texts), truth)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(1)).tolist()
    same(run(model, texts.rows(order)), [truth[i] for i in order])


@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize(
    "window", [1, pytest.param(2, marks=pytest.mark.long), 7, pytest.param(64, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("case", [Case(**row) for row in covering(CHOICES)], ids=str)
def test_window(case: Case, window: int, kind: str) -> None:
    everything(built(kind, case, window=window), Texts.make([90, 40, 3], seed=window), case.side, seed=window)


@pytest.mark.parametrize("kernels", CHOICES["kernels"])
@pytest.mark.parametrize(("kind", "layers"), [("decoder", 1), ("decoder", 3), ("encoder", 2)])
@pytest.mark.parametrize("length", [20, 90])
def test_window_reaches_as_far_as_it_says(length: int, kind: str, layers: int, kernels: str) -> None:
    """Through L layers of window w, influence goes back exactly L·(w − 1) positions."""
    window, here = 4, length // 2
    stack = {"decoder_layers": layers, "encoder_layers": layers}
    model = fresh(kind, positions="rope", window=window, kernels=kernels, **stack)
    embedded: list[Tensor] = []
    model.embedding.register_forward_hook(lambda module, inputs, output: embedded.append(output))
    out = model(tokens(1, length))[0, here]
    gradient = torch.autograd.grad((out * normal(len(out))).sum(), embedded[0])[0][0].abs().sum(-1)
    reach = layers * (window - 1)
    first, last = here - reach, here + reach if kind == "encoder" else here
    assert gradient.nonzero().flatten().tolist() == list(range(first, last + 1))
