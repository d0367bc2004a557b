"""Fast decoding against the model it prepares: the same logits at every step, for every configuration."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.decoding.beam import BeamSearch, beam_search
from clearhead.decoding.fast_steps import FastDecoding, SharedSteps
from clearhead.decoding.greedy import greedy
from clearhead.decoding.prepared import Fingerprint, PreparedHead, PreparedLinear, Preparer, is_our_attention
from clearhead.decoding.sample import Sampling, sample
from clearhead.decoding.steps import ModelSteps
from clearhead.lab.no_residual import NoResidual
from clearhead.model import DecoderOnly, EncoderDecoder, attention, configure, trace
from clearhead.model.attention import split_heads
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.settings import to_dict
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
    real = torch.arange(7) < torch.tensor([7, 3, 5, 1])[:, None]
    return torch.randint(3, 20, (4, 7)).masked_fill(~real, 0), real


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("tidy", [2, 100])
@torch.inference_mode()
def test_every_step_gives_the_same_logits(kind: str, shape: str, tidy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of different lengths, then beams that change places, then sentences that leave."""
    monkeypatch.setattr("clearhead.decoding.shared_cache.TIDY_EVERY", tidy)
    model, (source, real) = pair(kind, shape), batch()
    inputs = (source, real) if kind == "encoder-decoder" else ()
    plain, fast = ModelSteps(model, *inputs), FastDecoding(model).steps(*inputs)
    assert isinstance(fast, SharedSteps)
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
    assert (fast.cache.filled < 4 + 9 * 3) == (tidy == 2), "what no beam sees was meant to go"


@pytest.mark.parametrize("shape", ["as in the paper", "rope", "grouped, alibi, window"])
@torch.inference_mode()
def test_searches_find_the_same(shape: str) -> None:
    model, (source, real) = pair("encoder-decoder", shape, 3), batch()
    fast, limits = FastDecoding(model), [20, 9, 12, 20]
    for inputs, prompts in (((source, real), PROMPTS), ((source[:1], None), PROMPTS[:1])):
        count = len(prompts)
        for how in (BeamSearch(4, n_best=2), BeamSearch(5, 1.0, "power", refill=True)):
            wanted = beam_search(ModelSteps(model, *inputs), prompts, limits[:count], END, how)
            found = beam_search(fast.steps(*inputs), prompts, limits[:count], END, how)
            for left, right in zip(wanted, found, strict=True):
                assert [h.tokens for h in left] == [h.tokens for h in right]
                assert [h.score for h in left] == pytest.approx([h.score for h in right], abs=1e-9)
        assert greedy(fast.steps(*inputs), prompts, limits[:count], END)[0].tokens == (
            greedy(ModelSteps(model, *inputs), prompts, limits[:count], END)[0].tokens
        )
        arguments = (prompts, limits[:count], END, Sampling(1.2, seed=4), None, 3)
        wanted, found = sample(ModelSteps(model, *inputs), *arguments), sample(fast.steps(*inputs), *arguments)
        assert [[h.tokens for h in pool] for pool in wanted] == [[h.tokens for h in pool] for pool in found]


@pytest.mark.parametrize("rows", [1, 2, 5])
@torch.inference_mode()
def test_large_matrices_in_float32(rows: int) -> None:
    """Wide enough for oneDNN's layout; a single source short enough to be absorbed, and several."""
    torch.manual_seed(0)
    model = EncoderDecoder(configure("base", vocab_size=600, encoder_layers=1, decoder_layers=2)).eval()
    source = torch.randint(3, 600, (rows, 6))
    plain, fast = ModelSteps(model, source), FastDecoding(model).steps(source)
    left, right = plain.start([[1]] * rows), fast.start([[1]] * rows)
    assert isinstance(fast, SharedSteps)
    assert (fast.cache.layers[0].cross_attention.scores_from is not None) == (rows == 1)
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
    plain, fast = ModelSteps(model), FastDecoding(model).steps()
    left, right = plain.start([prompt]), fast.start([prompt])
    for _ in range(20):
        close(right, left)
        left, right = plain.step(left.argmax(-1)), fast.step(left.argmax(-1))
    short = FastDecoding(model).steps()
    left, right = ModelSteps(model).start([prompt[:200]]), short.start([prompt[:1]])
    for token in prompt[1:200]:
        right = short.step(torch.tensor([token]))
    close(right, left)


# ---- what is not ours, or no longer what it was ---------------------------------------------------------------------


class Changed(nn.Module):
    """A module with something around it, as a wrapper or an adapter has; otherwise it looks like what it holds."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return changed(self.inner(*arguments, **named))


def changed(made: Any) -> Any:
    """Something else, of the same shape."""
    if isinstance(made, Tensor) and made.is_floating_point():
        return 1.2 * made + 0.1 * made.roll(1, -1)
    if isinstance(made, AttentionInputs) and made.positions is not None:
        return replace(made, positions=made.positions // 2)
    return made


@torch.inference_mode()
def same_steps(model: Any, fast: FastDecoding | None = None) -> Tensor:
    """Prompts, beams that change places and leave, on the model and on what is prepared of it; the last logits."""
    source, real = batch()
    inputs = (source, real) if isinstance(model, EncoderDecoder) else ()
    slow, quick = ModelSteps(model, *inputs), (fast or FastDecoding(model)).steps(*inputs)
    close(quick.start(PROMPTS), slow.start(PROMPTS))
    for steps in (slow, quick):
        steps.widen(3)
    tokens = torch.arange(12) + 5
    for rows in ([1, 1, 0, 3, 5, 5, 8, 7, 6, 9, 9, 9], list(range(3, 12))):  # beams change places; a sentence leaves
        close(quick.step(tokens), slow.step(tokens))
        for steps in (slow, quick):
            steps.select(torch.tensor(rows))
        tokens = tokens[rows]
    found = slow.step(tokens)
    close(quick.step(tokens), found)
    return found


def parts(model: Any) -> list[str]:
    return [path for path, _ in model.named_modules() if path and not path.startswith("encoder")]


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
@pytest.mark.parametrize("shape", ["as in the paper", pytest.param("swiglu, rms", marks=pytest.mark.long)])
def test_every_part_may_be_replaced_or_hooked(kind: str, shape: str) -> None:
    """Each module of the decoder in turn: wrapped, with a hook after it or before it, with another forward."""
    usual = same_steps(pair(kind, shape))
    differ = 0
    for path in parts(pair(kind, shape)):
        for way in ("wrapped", "hook", "pre-hook", "forward"):
            model = pair(kind, shape)
            part = model.get_submodule(path)
            if way == "wrapped" and isinstance(part, nn.ModuleList):
                continue
            if way == "wrapped":
                parent, _, name = path.rpartition(".")
                model.get_submodule(parent)._modules[name] = Changed(part)
            elif way == "hook":
                part.register_forward_hook(lambda module, inputs, output: changed(output))
            elif way == "pre-hook":
                part.register_forward_pre_hook(lambda module, inputs: (changed(inputs[0]), *inputs[1:]))
            else:
                part.forward = Changed(copy.copy(part)).forward
            differ += not torch.allclose(same_steps(model), usual)
    assert differ > 3 * len(parts(pair(kind, shape))) // 2, "most of these change the logits"


def test_another_split_of_heads() -> None:
    model = pair("encoder-decoder", "pre-norm")
    attention = model.decoder.layers[1].self_attention
    attention.split_heads = lambda x, heads: x.unflatten(-1, (-1, heads)).movedim(-1, 1)
    assert not torch.allclose(same_steps(model), same_steps(pair("encoder-decoder", "pre-norm")))
    attention.split_heads, attention.merge_heads = split_heads, lambda x: x.transpose(1, 2).flatten(-2).flip(-1)
    same_steps(model)


def test_replaced_methods() -> None:
    """Not the module but what it does: an instance with another method than its class."""
    usual = same_steps(pair("encoder-decoder", "pre-norm"))
    model = pair("encoder-decoder", "pre-norm")
    decode, residual = model.decode, model.decoder.layers[0].feed_forward_residual
    model.decode = lambda *arguments: 1.5 * decode(*arguments)
    assert not torch.allclose(same_steps(model), usual)
    del model.decode
    residual.before = lambda x: residual.norm(2 + x.roll(1, -1))
    assert not torch.allclose(same_steps(model), usual)


@torch.inference_mode()
def test_a_source_of_padding_alone_gives_what_the_model_gives() -> None:
    model, (source, real) = pair("encoder-decoder", "pre-norm"), batch()
    real = real & torch.tensor([True, False, True, True])[:, None]
    slow, fast = ModelSteps(model, source, real), FastDecoding(model).steps(source, real)
    close(fast.start([[1]] * 4), slow.start([[1]] * 4))
    assert slow.step(torch.full((4,), 5)).isfinite().all()


def test_another_attention_or_type_is_left_to_the_model() -> None:
    def upside_down(q: Tensor, k: Tensor, v: Tensor, *others: Any, **named: Any) -> Any:
        return attention(-q, k, v, *others, **named)

    config = configure("llama", vocab_size=20, d_model=16, heads=2, kv_heads=1, d_ff=32, decoder_layers=1)
    plain = configure(None, **{**to_dict(config), "kernels": "plain"})
    for model in (DecoderOnly(config, upside_down), DecoderOnly(config).bfloat16(), DecoderOnly(plain)):
        assert isinstance(FastDecoding(model.eval()).steps(), ModelSteps)
    assert isinstance(FastDecoding(DecoderOnly(config).eval()).steps(), SharedSteps)
    same_steps(DecoderOnly(config, upside_down).double().eval())
    with trace():
        assert isinstance(FastDecoding(DecoderOnly(config).eval()).steps(), ModelSteps)


def test_an_adapter() -> None:
    """A low-rank adapter as people write it: a subclass of `nn.Linear`, and torch's own parametrization."""

    class Adapted(nn.Linear):
        down: Tensor
        up: Tensor

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + x @ self.down @ self.up

    class Doubled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    usual = same_steps(pair("encoder-decoder", "pre-norm"))
    model = pair("encoder-decoder", "pre-norm")
    query = model.decoder.layers[0].self_attention.query
    query.__class__ = Adapted
    query.down, query.up = torch.randn(16, 2).double(), torch.randn(2, 16).double()
    assert not torch.allclose(same_steps(model), usual)
    model = pair("encoder-decoder", "pre-norm")
    nn.utils.parametrize.register_parametrization(model.decoder.layers[0].feed_forward.inner, "weight", Doubled())
    assert not torch.allclose(same_steps(model), usual)


@pytest.mark.parametrize("arm", ["no norm", "no residual", "neither"])
def test_the_lab_s_ablations(arm: str) -> None:
    model = pair("encoder-decoder", "as in the paper")
    usual = same_steps(model)
    for layer in model.decoder.layers:
        for name in ("self_attention_residual", "cross_attention_residual", "feed_forward_residual"):
            norm = nn.Identity() if arm in ("no norm", "neither") else getattr(layer, name).norm
            getattr(layer, name).norm = norm
            if arm != "no norm":
                setattr(layer, name, NoResidual(norm))
    assert not torch.allclose(same_steps(model), usual)


@pytest.mark.parametrize("way", ["in place", "data", "data replaced", "parameter", "state", "module", "hook", "window"])
def test_a_model_that_changes_is_seen_as_it_is_now(way: str) -> None:
    """After a first batch something changes; the next batch must not be decoded with what was prepared before."""
    model, other = pair("encoder-decoder", "pre-norm"), pair("encoder-decoder", "pre-norm", seed=9)
    fast = FastDecoding(model)
    before = same_steps(model, fast)
    layer = model.decoder.layers[1]
    for weight in (layer.self_attention.value.weight, layer.feed_forward.outer.bias, model.embedding.weight):
        if way == "in place":
            with torch.no_grad():
                weight.mul_(1.5).add_(0.1)
        elif way == "data":
            weight.data.mul_(1.5).add_(0.1)
        elif way == "data replaced":
            weight.data = 1.5 * weight.data + 0.1
    if way == "parameter":
        layer.self_attention.out.weight = nn.Parameter(other.decoder.layers[0].self_attention.out.weight.data)
    elif way == "state":
        model.load_state_dict(other.state_dict())
    elif way == "module":
        layer.feed_forward = other.decoder.layers[0].feed_forward
    elif way == "hook":
        layer.cross_attention.register_forward_hook(lambda module, inputs, output: changed(output))
    elif way == "window":
        model.decoder.attention_inputs.window = 2
    assert not torch.allclose(same_steps(model, fast), before)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 127, 128, 1000])
def test_a_fingerprint_sees_every_sixty_fourth_of_a_weight_that_torch_does_not_see_change(size: int) -> None:
    weight = torch.zeros(size)
    fingerprint = Fingerprint([None, weight])
    stretch = max(1, size // 64)
    for start in range(0, size - stretch + 1, max(1, size // 10)):
        assert fingerprint.fits()
        weight.data[start : start + stretch] = 1
        assert not fingerprint.fits()
        weight.data[start : start + stretch] = 0


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 512, 512), (3, 512, 512), (7, 16, 24), (1, 16, 24)])
def test_linear_maps(shape: tuple[int, int, int], bias: bool) -> None:
    rows, inside, outside = shape
    torch.manual_seed(0)
    x, weight = torch.randn(rows, 1, inside), torch.randn(outside, inside)
    b = torch.randn(outside) if bias else None
    wanted = x @ weight.t() + (0 if b is None else b)
    torch.testing.assert_close(PreparedLinear(weight, b)(x), wanted, rtol=1e-4, atol=1e-4)


def test_attention_is_prepared_unless_it_drops_something() -> None:
    model = pair("decoder", "pre-norm")
    attention = model.decoder.layers[0].self_attention
    attention.dropout = 0.1
    assert is_our_attention(attention.eval())
    assert not is_our_attention(attention.train())
    attention.dropout = 0.0
    assert is_our_attention(attention)


def test_the_head_is_prepared_with_the_decoder() -> None:
    model = pair("decoder", "pre-norm")
    prepared = Preparer()(model, merge=True)
    assert type(prepared.output) is PreparedHead
    assert type(model.output) is not PreparedHead
