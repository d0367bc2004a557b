"""The same search as `transformers`, on random models of its own with the weights copied over, in float64.

Both sides run their own code throughout: their model and their `generate`, our model and our search. They rank with
float32 sums even in a float64 model, so scores agree to float32.
"""

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from clearhead.decoding.beam import BeamSearch, beam_search
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.greedy import greedy
from clearhead.decoding.sample import Sampling, candidates
from clearhead.decoding.steps import Hypothesis, ModelSteps
from clearhead.interop.families import read

START, END, PAD = 1, 2, 0


def sharpened(model: Any) -> Any:
    """Random weights give nearly even distributions; scaled up they have opinions, and ends happen."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed_positions" not in name:
                parameter.copy_(torch.randn_like(parameter) * (0.25 if "embed" in name or "wte" in name else 0.35))
    return model.double().eval()


@pytest.fixture(scope="module")
def marian() -> tuple[MarianMTModel, Any]:
    config = MarianConfig(
        vocab_size=60,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=START,
        scale_embedding=True,
    )
    theirs = sharpened(MarianMTModel(config))
    with torch.no_grad():
        theirs.final_logits_bias[0, END] = 3.0
    return theirs, read("marian", config.to_dict(), theirs.state_dict()).eval()


@pytest.fixture(scope="module")
def gpt2() -> tuple[GPT2LMHeadModel, Any]:
    config = GPT2Config(
        vocab_size=60, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=START, eos_token_id=END
    )
    theirs = sharpened(GPT2LMHeadModel(config))
    with torch.no_grad():
        theirs.transformer.wte.weight[END] *= 2  # longer rows have larger logits: ends happen
    return theirs, read("gpt2", config.to_dict(), theirs.state_dict()).eval()


def sources(rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(11)
    lengths = torch.tensor([10, 3, 7, 1, 5, 9, 2, 6])[:rows]
    real = torch.arange(10) < lengths[:, None]
    return torch.randint(3, 60, (rows, 10)).masked_fill(~real, PAD), real


def prompts() -> list[list[int]]:
    torch.manual_seed(13)
    return [torch.randint(3, 60, (length,)).tolist() for length in (1, 4, 2, 7, 3, 5)]


def whole(found: Hypothesis) -> list[int]:
    return [*found.tokens, *([END] if found.finished else [])]


def stripped(sequence: torch.Tensor, skip: int) -> list[int]:
    """Their padded output as ours: without the prompt, up to and with the end token."""
    tokens = sequence.tolist()[skip:]
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


def compare(theirs: Any, ours: list[list[Hypothesis]], skip: int) -> None:
    flat = [hypothesis for pool in ours for hypothesis in pool]
    assert [stripped(row, skip) for row in theirs.sequences] == [whole(h) for h in flat]
    if getattr(theirs, "sequences_scores", None) is not None:
        assert [h.score for h in flat] == pytest.approx(theirs.sequences_scores.tolist(), abs=2e-5)


SEARCHES = [(beams, alpha, n) for beams in (2, 4, 8) for alpha in (1.0, 0.0, 0.6, 2.0, -0.5) for n in (1, beams)]


@pytest.mark.parametrize(("beams", "alpha", "n_best"), SEARCHES)
def test_beam_translation(marian: Any, beams: int, alpha: float, n_best: int) -> None:
    theirs, ours = marian
    source, real = sources()
    expected = theirs.generate(
        source,
        attention_mask=real.long(),
        num_beams=beams,
        length_penalty=alpha,
        num_return_sequences=n_best,
        early_stopping="never",
        do_sample=False,
        max_new_tokens=12,
        return_dict_in_generate=True,
        output_scores=True,
    )
    how = BeamSearch(beams, alpha, "power", n_best, refill=True)
    with torch.inference_mode():
        found = beam_search(ModelSteps(ours, source, real), [[START]] * 8, [12] * 8, END, how)
    compare(expected, found, skip=1)
    assert alpha > 1 or any(h.finished for pool in found for h in pool)  # a high α favours what fills the limit


@pytest.mark.parametrize(("beams", "alpha", "n_best"), SEARCHES)
def test_beam_continuation_of_prompts_of_different_lengths(gpt2: Any, beams: int, alpha: float, n_best: int) -> None:
    theirs, ours = gpt2
    tokens = torch.full((6, 7), PAD)
    for row, prompt in enumerate(prompts()):
        tokens[row, 7 - len(prompt) :] = torch.tensor(prompt)
    mask = torch.arange(7) >= torch.tensor([7 - len(p) for p in prompts()])[:, None]
    expected = theirs.generate(
        tokens,
        attention_mask=mask.long(),
        num_beams=beams,
        length_penalty=alpha,
        num_return_sequences=n_best,
        early_stopping="never",
        do_sample=False,
        max_new_tokens=10,
        pad_token_id=PAD,
        return_dict_in_generate=True,
        output_scores=True,
    )
    how = BeamSearch(beams, alpha, "power", n_best, refill=True)
    with torch.inference_mode():
        found = beam_search(ModelSteps(ours), prompts(), [10] * 6, END, how)
    compare(expected, found, skip=7)
    assert alpha > 1 or any(h.finished for pool in found for h in pool)  # a high α favours what fills the limit


def test_greedy_and_a_beam_of_one(marian: Any, gpt2: Any) -> None:
    theirs, ours = marian
    source, real = sources()
    settings = {"num_beams": 1, "do_sample": False, "max_new_tokens": 12, "return_dict_in_generate": True}
    expected = theirs.generate(source, attention_mask=real.long(), **settings)
    with torch.inference_mode():
        found = greedy(ModelSteps(ours, source, real), [[START]] * 8, [12] * 8, END)
        beam = beam_search(ModelSteps(ours, source, real), [[START]] * 8, [12] * 8, END, BeamSearch(1))
    compare(expected, [[h] for h in found], skip=1)
    compare(expected, beam, skip=1)
    assert 0 < sum(h.finished for h in found) < 8

    theirs, ours = gpt2
    for prompt in prompts():
        expected = theirs.generate(torch.tensor([prompt]), pad_token_id=PAD, **settings)
        with torch.inference_mode():
            compare(expected, [greedy(ModelSteps(ours), [prompt], [12], END)], skip=len(prompt))


@pytest.mark.parametrize(
    ("key", "ours_key", "value"),
    [
        ("no_repeat_ngram_size", "no_repeat_ngram", 2),
        ("no_repeat_ngram_size", "no_repeat_ngram", 1),
        ("min_new_tokens", "min_length", 6),
        ("repetition_penalty", "repetition_penalty", 1.8),
    ],
)
def test_constraints_in_greedy_search(marian: Any, key: str, ours_key: str, value: Any) -> None:
    theirs, ours = marian
    source, real = sources()
    settings = {"num_beams": 1, "do_sample": False, "max_new_tokens": 14, "return_dict_in_generate": True}
    expected = theirs.generate(source, attention_mask=real.long(), **settings, **{key: value})
    free = theirs.generate(source, attention_mask=real.long(), **settings)
    with torch.inference_mode():
        steps = ModelSteps(ours, source, real)
        found = greedy(steps, [[START]] * 8, [14] * 8, END, Constraints(**{ours_key: value}))
    compare(expected, [[h] for h in found], skip=1)
    assert expected.sequences.shape != free.sequences.shape or not torch.equal(expected.sequences, free.sequences)


@pytest.mark.parametrize(
    ("key", "ours_key", "value"), [("no_repeat_ngram_size", "no_repeat_ngram", 2), ("min_new_tokens", "min_length", 6)]
)
def test_constraints_in_beam_search(marian: Any, key: str, ours_key: str, value: Any) -> None:
    theirs, ours = marian
    source, real = sources()
    settings = {"num_beams": 4, "do_sample": False, "max_new_tokens": 14, "return_dict_in_generate": True}
    expected = theirs.generate(
        source, attention_mask=real.long(), early_stopping="never", output_scores=True, **settings, **{key: value}
    )
    how = BeamSearch(4, 1.0, "power", refill=True, constraints=Constraints(**{ours_key: value}))
    with torch.inference_mode():
        found = beam_search(ModelSteps(ours, source, real), [[START]] * 8, [14] * 8, END, how)
    compare(expected, found, skip=1)


def test_the_logits_of_single_constraints() -> None:
    torch.manual_seed(3)
    written = torch.tensor([[5, 6, 7, 5, 6], [1, 1, 1, 1, 1], [9, 8, 7, 6, 5]])
    logits = torch.randn(3, 12, dtype=torch.float64)
    history = written.tolist()
    for size in (1, 2, 3):
        expected = NoRepeatNGramLogitsProcessor(size)(written, logits.clone())
        assert torch.equal(Constraints(no_repeat_ngram=size).forbid(logits.clone(), history, 5, None), expected)
    for penalty in (0.5, 1.3, 2.0):
        expected = RepetitionPenaltyLogitsProcessor(penalty)(written, logits.clone())
        assert torch.equal(Constraints(repetition_penalty=penalty).penalise(logits, history), expected)


@pytest.mark.parametrize(
    "how",
    [Sampling(top_k=5), Sampling(top_p=0.7), Sampling(min_p=0.2), Sampling(0.7, 20, 0.9, 0.05), Sampling(2.0, 3, 0.5)],
)
def test_what_sampling_may_choose_from(how: Sampling) -> None:
    torch.manual_seed(5)
    logits = 3 * torch.randn(50, 40, dtype=torch.float64)
    tokens, probabilities = candidates(logits, how)
    ours = torch.zeros_like(logits).scatter(1, tokens, probabilities)
    ours = ours / ours.sum(-1, keepdim=True)
    scores = logits / how.temperature
    warpers: list[Any] = []
    warpers += [TopKLogitsWarper(how.top_k)] if how.top_k > 0 else []
    warpers += [TopPLogitsWarper(how.top_p)] if how.top_p < 1 else []
    warpers += [MinPLogitsWarper(how.min_p)] if how.min_p > 0 else []
    for warper in warpers:
        scores = warper(None, scores)
    torch.testing.assert_close(ours, scores.softmax(-1), atol=1e-12, rtol=1e-9)
    assert (ours == 0).any()
