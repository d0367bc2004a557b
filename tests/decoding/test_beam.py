"""Beam search against exhaustive search, against itself in other batches, and against greedy search."""

import itertools
import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.decoding.beam import BeamSearch, beam_search, decided
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.greedy import greedy, top_tokens
from clearhead.decoding.steps import Hypothesis, ModelSteps
from clearhead.errors import InputError
from tests.decoding.models import opinionated

END = 2


def log_prob_of(model: torch.nn.Module, source: Tensor, tokens: tuple[int, ...]) -> float:
    """Summed log-probability by one teacher-forced pass."""
    target = torch.tensor([[1, *tokens[:-1]]])
    with torch.inference_mode():
        log_probs = model(source, target).log_softmax(-1)[0]
    return sum(float(log_probs[i, token]) for i, token in enumerate(tokens))


def exhaustive(model: torch.nn.Module, source: Tensor, vocabulary: int, limit: int, how: BeamSearch) -> list:
    """Every sequence there is: those that end, and those that fill the limit; best first."""
    results = []
    for length in range(1, limit + 1):
        for tokens in itertools.product(range(vocabulary), repeat=length):
            if END in tokens[:-1] or (tokens[-1] != END and length < limit):
                continue
            results.append((log_prob_of(model, source, tokens) / how.penalty(length), tokens))
    return sorted(results, reverse=True)


@pytest.mark.parametrize("refill", [False, True])
@pytest.mark.parametrize(("form", "alpha"), [("gnmt", 0.6), ("power", 1.0), ("power", -0.5), ("gnmt", 0.0)])
def test_a_beam_that_is_wide_enough_is_exhaustive_search(
    form: Literal["gnmt", "power"], alpha: float, refill: bool
) -> None:
    vocabulary, limit = 4, 4
    model = opinionated(3, vocab_size=vocabulary)
    source = torch.tensor([[0, 3, 1, 3, 2]])
    # no step can have more than 3^3·4 continuations
    how = BeamSearch(108, alpha, form, n_best=10, refill=refill)
    wanted = exhaustive(model, source, vocabulary, limit, how)[:10]
    with torch.inference_mode():
        found = beam_search(ModelSteps(model, source), [[1]], [limit], END, how)[0]
    assert [tuple(h.tokens) + ((END,) if h.finished else ()) for h in found] == [tokens for _, tokens in wanted]
    assert [h.score for h in found] == pytest.approx([score for score, _ in wanted], abs=1e-12)
    assert any(h.finished for h in found)
    assert any(not h.finished for h in found) or alpha <= 0


def by_the_book(model: torch.nn.Module, source: Tensor, limit: int, how: BeamSearch) -> list:
    """The search as one would explain it: lists of (sum, tokens), every continuation scored anew, to the very end."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, limit + 1):
        open_slots = how.beam_size if how.refill else how.beam_size - len(finished)
        with torch.inference_mode():
            longer = [
                (total + float(gain), (*tokens, token))
                for total, tokens in live
                for token, gain in enumerate(model(source, torch.tensor([[1, *tokens]]))[0, -1].log_softmax(-1))
            ]
        longer.sort(reverse=True)
        ended = [(total, tokens) for total, tokens in longer[:open_slots] if tokens[-1] == END or length == limit]
        finished += [(total / how.penalty(length), tokens) for total, tokens in ended]
        going = longer[: 2 * how.beam_size] if how.refill else longer[:open_slots]
        live = [one for one in going if one not in ended and one[1][-1] != END][: how.beam_size]
    return sorted(finished, reverse=True)[: how.beam_size]


@pytest.mark.parametrize("refill", [False, True])
def test_narrow_beams_prune_by_the_book(refill: bool) -> None:
    different = 0
    for seed in range(5):
        model = opinionated(seed, sharpness=1.5, vocab_size=7)
        source = torch.tensor([[3, 5, 6, 4, 2]])
        for size in (2, 3, 5):
            how = BeamSearch(size, 0.6, "gnmt", n_best=size, refill=refill)
            wanted = by_the_book(model, source, 6, how)
            with torch.inference_mode():
                found = beam_search(ModelSteps(model, source), [[1]], [6], END, how)[0]
            assert [tuple(h.tokens) + ((END,) if h.finished else ()) for h in found] == [tokens for _, tokens in wanted]
            assert [h.score for h in found] == pytest.approx([score for score, _ in wanted], abs=1e-12)
            other = by_the_book(model, source, 6, BeamSearch(size, 0.6, "gnmt", n_best=size, refill=not refill))
            different += wanted != other
    assert different > 3, "the two ways to treat a finished hypothesis were meant to differ"


def test_length_penalties_as_published() -> None:
    assert BeamSearch(length_penalty=0.6).penalty(7) == pytest.approx(
        (5 + 7) ** 0.6 / (5 + 1) ** 0.6
    )  # Wu et al., (14)
    assert BeamSearch(length_penalty=0.6, length_form="power").penalty(7) == pytest.approx(7**0.6)


def batch(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 9, (rows,), generator=generator)
    lengths[0] = 8
    tokens = torch.randint(3, 20, (rows, 8), generator=generator)
    real = torch.arange(8) < lengths[:, None]
    return tokens.masked_fill(~real, 0), real


def search(model: Any, tokens: Tensor, real: Tensor, how: BeamSearch, limit: int = 12) -> list:
    with torch.inference_mode():
        steps = ModelSteps(model, tokens, real)
        return beam_search(steps, [[1]] * len(tokens), [limit] * len(tokens), END, how)


def same(left: list[Hypothesis], right: list[Hypothesis], tolerance: float) -> None:
    assert [h.tokens for h in left] == [h.tokens for h in right]
    assert [h.finished for h in left] == [h.finished for h in right]
    assert [h.score for h in left] == pytest.approx([h.score for h in right], abs=tolerance)


@pytest.mark.parametrize("refill", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_what_else_is_in_the_batch_changes_nothing(dtype: torch.dtype, tolerance: float, refill: bool) -> None:
    model = opinionated(1).to(dtype)
    tokens, real = batch(1, 6)
    how = BeamSearch(3, n_best=3, refill=refill)
    together = search(model, tokens, real, how)
    reversed_order = search(model, tokens.flip(0), real.flip(0), how)[::-1]
    wider = search(model, torch.cat((tokens, torch.zeros(6, 5, dtype=torch.long)), 1), extended(real, 5), how)
    for row in range(6):
        length = int(real[row].sum())
        alone = search(model, tokens[row : row + 1, :length], real[row : row + 1, :length], how)[0]
        for other in (reversed_order[row], wider[row], alone):
            same(together[row], other, tolerance)
    assert len({len(h[0].tokens) for h in together}) > 1, "all ended at once: nothing left the batch early"


def extended(real: Tensor, count: int) -> Tensor:
    return torch.cat((real, real.new_zeros(len(real), count)), 1)


def test_a_beam_of_one_is_greedy_search() -> None:
    finished = 0
    for seed in range(8):
        model = opinionated(seed)
        tokens, real = batch(seed, 5)
        beams = search(model, tokens, real, BeamSearch(1, 1.0, "power"))
        with torch.inference_mode():
            chosen = greedy(ModelSteps(model, tokens, real), [[1]] * 5, [12] * 5, END)
        for beam, path in zip(beams, chosen, strict=True):
            assert beam[0].tokens == path.tokens
            assert beam[0].log_probs == pytest.approx(path.log_probs, abs=1e-12)
            finished += path.finished
    assert finished >= 5


@pytest.mark.parametrize("positions", ["sinusoidal", "rope", "alibi"])
def test_with_the_cache_or_reading_everything_again(positions: str) -> None:
    model = opinionated(5, positions={"kind": positions})
    tokens, real = batch(5, 4)
    how = BeamSearch(3, n_best=3)
    prompts = [[1], [1, 7, 7], [1, 9], [1, 4, 5, 6]]  # forced beginnings of different lengths
    with torch.inference_mode():
        cached = beam_search(ModelSteps(model, tokens, real), prompts, [9] * 4, END, how)
        again = beam_search(ModelSteps(model, tokens, real, cached=False), prompts, [9] * 4, END, how)
        alone = [
            beam_search(ModelSteps(model, tokens[i : i + 1], real[i : i + 1]), prompts[i : i + 1], [9], END, how)[0]
            for i in range(4)
        ]
    for row in range(4):
        same(cached[row], again[row], 1e-12)
        same(cached[row], alone[row], 1e-12)


def test_log_probs_are_the_models_own() -> None:
    model = opinionated(2)
    tokens, real = batch(2, 3)
    for constraints in (Constraints(), Constraints(repetition_penalty=1.7, no_repeat_ngram=2, min_length=3)):
        found = search(model, tokens, real, BeamSearch(3, n_best=2, constraints=constraints))
        for row, pool in enumerate(found):
            length = int(real[row].sum())
            for h in pool:
                whole = (*h.tokens, *([END] if h.finished else []))
                assert h.log_prob == pytest.approx(log_prob_of(model, tokens[row : row + 1, :length], whole), abs=1e-12)


def test_early_stop_never_changes_the_result() -> None:
    """A bound that is too eager would lose the winner; searching on to the limit must find nothing better."""

    class Patient(BeamSearch):
        def bound(self, total: float, length: int, limit: int) -> float:
            return math.inf

    class Counted(ModelSteps):
        asked = 0

        def step(self, tokens: Tensor) -> Tensor:
            type(self).asked += 1
            return super().step(tokens)

    asked = {BeamSearch: 0, Patient: 0}
    forms: tuple[Literal["gnmt", "power"], ...] = ("gnmt", "power")
    for seed, alpha, form, refill in itertools.product(range(3), (0.6, 1.5, -0.3), forms, (True, False)):
        model = opinionated(seed, sharpness=1.5, ending=4.0)
        tokens, real = batch(seed, 2)
        results = []
        for kind in asked:
            Counted.asked = 0
            with torch.inference_mode():
                steps = Counted(model, tokens, real)
                how = kind(3, alpha, form, n_best=2, refill=refill)
                results.append(beam_search(steps, [[1]] * 2, [12] * 2, END, how))
            asked[kind] += Counted.asked
        for left, right in zip(*results, strict=True):
            same(left, right, 1e-12)
    assert asked[BeamSearch] < 0.9 * asked[Patient], asked


def test_the_bound_decides() -> None:
    pool = [Hypothesis([5], [-1.0], True, -1.0)]
    how = BeamSearch(2, 1.0, "power")
    assert not decided(-5.0, 3, 10, pool, how)  # -5 / 10 may still beat -1
    assert decided(-11.0, 3, 10, pool, how)
    assert not decided(-11.0, 3, 12, pool, how)
    assert not decided(-11.0, 3, 10, pool, BeamSearch(2, 1.0, "power", n_best=2))  # the second place is empty
    assert decided(-math.inf, 3, 10, [], how)


def test_limits_and_least_lengths() -> None:
    model = opinionated(4)
    tokens, real = batch(4, 3)
    with torch.inference_mode():
        steps = ModelSteps(model, tokens, real)
        found = beam_search(steps, [[1]] * 3, [1, 4, 9], END, BeamSearch(3, n_best=3))
    for pool, limit in zip(found, (1, 4, 9), strict=True):
        assert all(len(h.log_probs) <= limit for h in pool)
        assert all(len(h.log_probs) == limit for h in pool if not h.finished)
    least = search(model, tokens, real, BeamSearch(3, n_best=3, constraints=Constraints(min_length=6)))
    assert all(len(h.tokens) >= 6 for pool in least for h in pool)
    free = search(model, tokens, real, BeamSearch(3, n_best=3))
    assert any(len(h.tokens) < 6 for pool in free for h in pool)


def test_a_repetition_penalty_changes_the_choice_and_not_the_log_probabilities() -> None:
    """A beam of one is greedy search, whose penalty is compared with that of `transformers`."""
    model = opinionated(3)
    tokens, real = batch(3, 6)
    penalised = Constraints(repetition_penalty=3.0)
    with torch.inference_mode():
        one = search(model, tokens, real, BeamSearch(1, constraints=penalised))
        walked = greedy(ModelSteps(model, tokens, real), [[1]] * 6, [12] * 6, END, penalised)
    free = search(model, tokens, real, BeamSearch(1))
    assert [pool[0].tokens for pool in one] == [path.tokens for path in walked]
    assert [pool[0].tokens for pool in one] != [pool[0].tokens for pool in free]
    for pool, path in zip(one, walked, strict=True):
        assert pool[0].log_probs == pytest.approx(path.log_probs, abs=1e-12)


@given(rows=st.integers(1, 40), vocabulary=st.integers(1, 3000), count=st.integers(1, 9), seed=st.integers(0, 10_000))
def test_top_tokens_are_the_top_tokens(rows: int, vocabulary: int, count: int, seed: int) -> None:
    scores = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))
    scores[scores < -1] = -math.inf
    count = min(count, vocabulary)
    values, tokens = top_tokens(scores, count)
    assert torch.equal(values, scores.topk(count).values)
    assert torch.equal(scores.gather(1, tokens), values)
    assert all(len(set(row)) == count for row in tokens.tolist())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"beam_size": 0}, "beam_size"),
        ({"beam_size": 2, "n_best": 3}, "n_best"),
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"length_form": "log"}, "length_form"),
    ],
)
def test_impossible_searches_are_refused(wrong: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        BeamSearch(**wrong)
