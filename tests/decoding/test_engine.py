"""The engine against the model it prepares: the same logits at every step, for every configuration."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.decoding.beam import BeamSearch, beam_search
from clearhead.decoding.engine import Engine, EngineSteps
from clearhead.decoding.greedy import greedy
from clearhead.decoding.prepared import Matrix
from clearhead.decoding.sample import Sampling, sample
from clearhead.decoding.steps import ModelSteps
from clearhead.model import DecoderOnly, EncoderDecoder, attention, configure
from tests.decoding.models import opinionated

END = 2
SHAPES: dict[str, dict[str, Any]] = {
    "as in the paper": {"norm": {"placement": "post"}},
    "pre-norm": {},
    "no biases": {"bias": False},
    "rope": {"positions": {"kind": "rope"}},
    "rope, split": {"positions": {"kind": "rope", "layout": "split"}},
    "alibi": {"positions": {"kind": "alibi"}},
    "learned": {"positions": {"kind": "learned", "max_length": 40}},
    "no positions": {"positions": {"kind": "none"}, "embedding": {"scaled": True, "norm": True}},
    "window": {"window": 3},
    "grouped": {"heads": 4, "kv_heads": 2},
    "grouped, alibi, window": {"heads": 4, "kv_heads": 1, "positions": {"kind": "alibi"}, "window": 4},
    "swiglu, rms": {"activation": "swiglu", "norm": {"kind": "rms"}},
    "gelu": {"activation": "gelu"},
    "untied": {"head": {"tied": False, "bias": True}},
    "post-norm with a final norm": {"norm": {"placement": "post", "final": True}},
}
PROMPTS = [[1], [1, 7, 7], [1, 9], [1, 4, 5, 6]]


def pair(kind: str, shape: str, seed: int = 0) -> Any:
    return opinionated(seed, sharpness=1.5, kind=kind, **SHAPES[shape])


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    padding = torch.arange(7) < torch.tensor([7, 3, 5, 1])[:, None]
    return torch.randint(3, 20, (4, 7)).masked_fill(~padding, 0), padding


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("tidy", [2, 100])
@torch.inference_mode()
def test_every_step_gives_the_same_logits(kind: str, shape: str, tidy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of different lengths, then beams that change places, then sentences that leave."""
    monkeypatch.setattr("clearhead.decoding.engine.TIDY_EVERY", tidy)
    model, (source, padding) = pair(kind, shape), batch()
    inputs = (source, padding) if kind == "encoder-decoder" else ()
    plain, fast = ModelSteps(model, *inputs), Engine(model).steps(*inputs)
    assert isinstance(fast, EngineSteps)
    generator = torch.Generator().manual_seed(2)
    close(fast.start(PROMPTS), plain.start(PROMPTS))
    for steps in (plain, fast):
        steps.widen(3)
    sentences = 4
    for number in range(9):
        tokens = torch.randint(3, 20, (3 * sentences,), generator=generator)
        close(fast.step(tokens), plain.step(tokens))
        parents = torch.randint(0, 3, (sentences, 3), generator=generator) + 3 * torch.arange(sentences)[:, None]
        if number in (3, 6):
            parents, sentences = parents[[0, *range(2, sentences)]], sentences - 1
        for steps in (plain, fast):
            steps.select(parents.flatten())
    assert fast.rows == plain.rows == 6
    assert (fast.filled < 4 + 9 * 3) == (tidy == 2), "what no beam sees was meant to go"


@pytest.mark.parametrize("shape", ["as in the paper", "rope", "grouped, alibi, window"])
@torch.inference_mode()
def test_searches_find_the_same(shape: str) -> None:
    model, (source, padding) = pair("encoder-decoder", shape, 3), batch()
    engine, limits = Engine(model), [20, 9, 12, 20]
    for inputs, prompts in (((source, padding), PROMPTS), ((source[:1], None), PROMPTS[:1])):
        count = len(prompts)
        for how in (BeamSearch(4, n_best=2), BeamSearch(5, 1.0, "power", refill=True)):
            wanted = beam_search(ModelSteps(model, *inputs), prompts, limits[:count], END, how)
            found = beam_search(engine.steps(*inputs), prompts, limits[:count], END, how)
            for left, right in zip(wanted, found, strict=True):
                assert [h.tokens for h in left] == [h.tokens for h in right]
                assert [h.score for h in left] == pytest.approx([h.score for h in right], abs=1e-9)
        assert greedy(engine.steps(*inputs), prompts, limits[:count], END)[0].tokens == (
            greedy(ModelSteps(model, *inputs), prompts, limits[:count], END)[0].tokens
        )
        arguments = (prompts, limits[:count], END, Sampling(1.2, seed=4), None, 3)
        wanted, found = sample(ModelSteps(model, *inputs), *arguments), sample(engine.steps(*inputs), *arguments)
        assert [[h.tokens for h in pool] for pool in wanted] == [[h.tokens for h in pool] for pool in found]


@pytest.mark.parametrize("rows", [1, 2, 5])
@torch.inference_mode()
def test_large_matrices_in_float32(rows: int) -> None:
    """Wide enough for oneDNN's layout; a single source short enough to be absorbed, and several."""
    torch.manual_seed(0)
    model = EncoderDecoder(configure("base", vocab_size=600, encoder_layers=1, decoder_layers=2)).eval()
    source = torch.randint(3, 600, (rows, 6))
    plain, fast = ModelSteps(model, source), Engine(model).steps(source)
    left, right = plain.start([[1]] * rows), fast.start([[1]] * rows)
    assert isinstance(fast, EngineSteps)
    assert (fast.memories[0].before is not None) == (rows == 1)
    for width in (1, 4):
        for steps in (plain, fast):
            steps.widen(width)
        for _ in range(5):
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)
            tokens = left.argmax(-1).repeat_interleave(plain.rows // len(left))
            left, right = plain.step(tokens), fast.step(tokens)


@torch.inference_mode()
def test_far_into_a_text() -> None:
    """Past the capacity allocated first, and past 2,048 tokens."""
    model = opinionated(1, "llama", kv_heads=1)
    torch.manual_seed(0)
    prompt = torch.randint(3, 20, (2_040,)).tolist()
    plain, fast = ModelSteps(model), Engine(model).steps()
    left, right = plain.start([prompt]), fast.start([prompt])
    for _ in range(20):
        close(right, left)
        left, right = plain.step(left.argmax(-1)), fast.step(left.argmax(-1))
    short = Engine(model).steps()
    left, right = ModelSteps(model).start([prompt[:200]]), short.start([prompt[:1]])
    for token in prompt[1:200]:
        right = short.step(torch.tensor([token]))
    close(right, left)


def test_what_cannot_be_prepared_is_left_to_the_model() -> None:
    def upside_down(q: Tensor, k: Tensor, v: Tensor, *others: Any, **named: Any) -> Any:
        return attention(-q, k, v, *others, **named)

    config = configure("llama", vocab_size=20, d_model=16, heads=2, kv_heads=1, d_ff=32, decoder_layers=1)
    plain = configure(None, **_plain(config))
    for model in (DecoderOnly(config, upside_down), DecoderOnly(config).bfloat16(), DecoderOnly(plain)):
        assert isinstance(Engine(model.eval()).steps(), ModelSteps)
    assert isinstance(Engine(DecoderOnly(config).eval()).steps(), EngineSteps)


def _plain(config: Any) -> dict[str, Any]:
    from clearhead.settings import to_dict

    return {**to_dict(config), "kernels": "plain"}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 512, 512), (3, 512, 512), (7, 16, 24), (1, 16, 24)])
def test_matrices(shape: tuple[int, int, int], bias: bool) -> None:
    rows, inside, outside = shape
    torch.manual_seed(0)
    x, weight, y = torch.randn(rows, inside), torch.randn(outside, inside), torch.randn(rows, outside)
    b = torch.randn(outside) if bias else None
    wanted = x @ weight.t() + (0 if b is None else b)
    matrix = Matrix(weight, b)
    torch.testing.assert_close(matrix(x), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(matrix(x, relu=True), wanted.clamp(min=0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(matrix.plus(x, y), wanted + y, rtol=1e-4, atol=1e-4)
