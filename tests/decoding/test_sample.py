"""Sampling: the distribution it claims, and the same text from a seed whatever else is in the batch."""

import itertools

import pytest
import torch

from clearhead.decoding.beam import BeamSearch, beam_search
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.greedy import greedy
from clearhead.decoding.sample import Chooser, Sampling, drawn, sample
from clearhead.decoding.steps import ModelSteps, left_pad
from clearhead.errors import InputError
from tests.decoding.models import opinionated

END = 2
PROMPTS = [[5], [7, 8, 9], [5, 6], [4, 4, 4, 4, 4], [11, 3]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("how", [Sampling(1.3, seed=5), Sampling(0.9, top_k=6, top_p=0.9, min_p=0.01, seed=1)])
def test_a_seed_gives_the_same_text_in_any_batch(how: Sampling, dtype: torch.dtype) -> None:
    model = opinionated(1, "llama", kv_heads=1).to(dtype)
    limits = [12, 9, 12, 5, 12]
    together = sample(ModelSteps(model), PROMPTS, limits, END, how, samples=3)
    order = [3, 1, 4, 0, 2]
    shuffled = sample(ModelSteps(model), [PROMPTS[i] for i in order], [limits[i] for i in order], END, how, samples=3)
    for index, prompt in enumerate(PROMPTS):
        alone = sample(ModelSteps(model), [prompt], [limits[index]], END, how, samples=3)[0]
        fewer = sample(ModelSteps(model), [prompt], [limits[index]], END, how)[0]
        other = shuffled[order.index(index)]
        for number in range(3):
            assert together[index][number].tokens == alone[number].tokens == other[number].tokens
            assert together[index][number].log_probs == pytest.approx(alone[number].log_probs, abs=1e-4)
        assert fewer[0].tokens == alone[0].tokens
    assert len({tuple(h.tokens) for h in together[0]}) == 3, "three samples of one prompt are three texts"
    assert together != sample(ModelSteps(model), PROMPTS, limits, END, Sampling(1.3, seed=6), samples=3)
    assert len({len(h.log_probs) for pool in together for h in pool}) > 2, "rows were meant to leave early"


def test_draws_follow_the_distribution() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 8, dtype=torch.float64).mul(2)
    chooser = Chooser(Sampling(1.5, seed=3), samples=40_000)
    drawn = chooser(logits.expand(40_000, -1), range(40_000))
    found = torch.bincount(drawn, minlength=8) / 40_000
    wanted = (logits[0] / 1.5).softmax(-1)
    # 40,000 draws: a share p is off by √(p(1 − p)/40,000) on average, at most 0.0025
    assert (found - wanted).abs().max() < 0.01


def test_each_of_four_equal_tokens_has_its_quarter_of_the_draws() -> None:
    """A quarter begins with the draw on its edge: with 0.25 it is the turn of the second token."""
    draws = [0.0, 0.2499, 0.25, 0.4999, 0.5, 0.75, 0.9999]
    tokens = drawn(torch.zeros(len(draws), 4), Sampling(), draws).tolist()
    first, second, third, fourth = dict.fromkeys(tokens)
    assert tokens == [first, first, second, second, third, fourth, fourth]


@pytest.mark.parametrize("how", [{"top_p": 0.6}, {"min_p": 0.3}, {"top_k": 3}, {"top_k": 6, "top_p": 0.8}])
def test_what_is_left_after_a_cut_keeps_its_proportions(how: dict) -> None:
    """The tokens that stay share the whole probability; the mass of the others must not fall on one of them."""
    logits = torch.tensor([[0.1, 1.2, -1.0, 2.0, 0.9, 0.2, -0.3, 1.6]], dtype=torch.float64)
    shares = dict(enumerate(logits[0].softmax(-1).tolist()))
    order = sorted(shares, key=lambda token: -shares[token])
    kept = order[: how.get("top_k", 8)]
    whole = sum(shares[token] for token in kept)
    kept = [t for i, t in enumerate(kept) if sum(shares[b] for b in kept[:i]) < how.get("top_p", 1) * whole]
    kept = [t for t in kept if shares[t] >= how.get("min_p", 0) * shares[order[0]]]
    assert 1 < len(kept) < 8
    left = sum(shares[token] for token in kept)
    drawn = Chooser(Sampling(**how, seed=4), samples=20_000)(logits.expand(20_000, -1), range(20_000)).tolist()
    for token in range(8):
        wanted = shares[token] / left if token in kept else 0
        # 20,000 draws: a share is off by at most 0.0036 on average
        assert drawn.count(token) / 20_000 == pytest.approx(wanted, abs=0.015 if wanted else 0)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_ngrams_are_blocked_from_the_first_token_of_the_prompt_to_the_last_written(size: int, search: str) -> None:
    """Against the rule itself, tried for each token on the whole text so far: neither more nor less is forbidden."""
    model = opinionated(5, "llama", kv_heads=1, vocab_size=12, ending=-9.0)
    prompts = [[5, 6, 7, 5, 6], [4], [3, 3], [9, 8, 9]]
    never = Constraints(no_repeat_ngram=size)
    limits, blocked = [9] * len(prompts), 0
    if search == "greedy":
        found = [h.tokens for h in greedy(ModelSteps(model), prompts, limits, None, never)]
    else:
        how = BeamSearch(1, constraints=never)
        found = [pool[0].tokens for pool in beam_search(ModelSteps(model), prompts, limits, None, how)]
    for prompt, tokens in zip(prompts, found, strict=True):
        text = list(prompt)
        for token in tokens:
            seen = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)}
            with torch.inference_mode():
                scores = model(torch.tensor([text]))[0, -1]
            free = [one for one in range(12) if tuple([*text, one][-size:]) not in seen or len(text) < size]
            blocked += int(scores.argmax()) not in free
            assert token == max(free or range(12), key=lambda one: float(scores[one]))
            text.append(token)
    assert blocked > 3


def test_temperature_zero_and_top_k_one_are_greedy() -> None:
    model = opinionated(2, "gpt2", positions={"max_length": 32})
    limits = [10] * 5
    wanted = [h.tokens for h in greedy(ModelSteps(model), PROMPTS, limits, END)]
    for how in (Sampling(0.0), Sampling(2.0, top_k=1), Sampling(1.0, top_p=1e-9), Sampling(3.0, min_p=1.0)):
        assert [pool[0].tokens for pool in sample(ModelSteps(model), PROMPTS, limits, END, how)] == wanted


def test_constraints_hold_in_samples() -> None:
    model = opinionated(3, "llama", kv_heads=1)
    never = Constraints(min_length=4, no_repeat_ngram=2, forbidden=(0, 1, 5))
    written = sample(ModelSteps(model), PROMPTS, [15] * 5, END, Sampling(1.5), never, samples=8)
    for prompt, pool in zip(PROMPTS, written, strict=True):
        for h in pool:
            assert len(h.tokens) >= 4
            assert not {0, 1, 5} & set(h.tokens)
            whole = [*prompt, *h.tokens]
            pairs = list(itertools.pairwise(whole))
            fresh = pairs[max(0, len(prompt) - 1) :]
            assert len(set(fresh)) == len(fresh)
            assert not set(fresh) & set(pairs[: len(prompt) - 1])


def test_a_row_with_nothing_left_to_write_may_repeat_itself() -> None:
    scores = torch.zeros(2, 3)
    free = Constraints(no_repeat_ngram=1).forbid(scores, [[0, 1, 2], [0, 1]], 3, None)
    assert torch.equal(free[0], scores[0])
    assert free[1].tolist() == [-torch.inf, -torch.inf, 0.0]


def test_left_padding() -> None:
    tokens, real = left_pad([[5, 6, 7], [8]])
    assert tokens.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert real.tolist() == [[True] * 3, [False, False, True]]
    with pytest.raises(InputError, match="at least one token"):
        left_pad([[5], []])
    with pytest.raises(InputError, match="every prompt needs at least one token"):
        left_pad([])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"temperature": -1}, "temperature"), ({"top_k": -1}, "top_k"), ({"top_p": 0}, "top_p"), ({"min_p": 2}, "min_p")],
)
def test_impossible_sampling_is_refused(wrong: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        Sampling(**wrong)


@pytest.mark.parametrize("temperature", [1e-9, 1e-300, 5e-324])
def test_a_temperature_near_zero_is_greedy(temperature: float) -> None:
    """Where a quotient is larger than any number."""
    scores = torch.tensor([[3.0, 7.5, -torch.inf, 7.0], [-40.0, -torch.inf, -39.0, -41.0]])
    assert drawn(scores, Sampling(temperature), [0.999, 0.0]).tolist() == [1, 2]
