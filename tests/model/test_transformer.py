"""The three models: their sizes, how they start, that they learn, and what they refuse."""

import copy
import math
import pickle
from itertools import cycle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import clearhead
from clearhead.model import PRESETS, count_parameters
from clearhead.model.attention import MultiHeadAttention, attention, fused_attention
from clearhead.model.feedforward import FUSED, PLAIN, FeedForward
from clearhead.model.norm import LayerNorm, RMSNorm, fused_layer_norm, fused_rms_norm, layer_norm, rms_norm
from tests.model.cases import POSITIONS
from tests.model.helpers import KINDS, all_close, close, config, gradients, lengths_to_real, model, normal, tokens

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "swiglu")

# ---- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("preset", "published"), [("gpt2", 124_439_808), ("bert-base", 109_482_240)])
def test_parameter_counts(preset: str, published: int) -> None:
    """Those of the paper's models, which it gives in millions, are in tests/cost/test_paper_counts.py."""
    assert count_parameters(clearhead.configure(preset)) == published


def test_counting_takes_no_memory() -> None:
    """26 trillion parameters, 100 TB: counted, never held."""
    giant = clearhead.configure("llama", vocab_size=2**20, d_model=2**17, heads=2**10, d_ff=2**19, decoder_layers=100)
    layer = (2 + 2 * 4 / 1024) * 2**34 + 3 * 2**36 + 2 * 2**17
    assert count_parameters(giant) == 100 * layer + 2**20 * 2**17 + 2**17


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_build_and_run(preset: str) -> None:
    small = {"vocab_size": 50, "d_model": 32, "heads": 4, "d_ff": 48, "encoder_layers": 1, "decoder_layers": 1}
    kv_heads = {"kv_heads": 2} if preset == "llama" else {}
    built = clearhead.build(clearhead.configure(preset, **small, **kv_heads)).train()
    ids = tokens(2, 7)
    out = built(ids, ids) if built.config.kind == "encoder-decoder" else built(ids)
    out.sum().backward()
    assert torch.isfinite(out).all()
    gradients(built)  # every parameter takes part


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_tied_head_is_the_embedding(kind: str, tied: bool) -> None:
    built = model(kind, head={"tied": tied, "bias": True})
    assert ("output.weight" in dict(built.named_parameters())) == (not tied)
    hidden = normal(2, 3, 24)
    matrix = built.embedding.weight if tied else built.output.weight
    close(built.head(hidden), hidden @ matrix.t() + built.output.bias)


# ---- the start, and learning ---------------------------------------------------------------------------------------

V = 400
SMALL = {"vocab_size": V, "d_model": 64, "heads": 4, "d_ff": 128, "encoder_layers": 2, "decoder_layers": 2}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "encoder-decoder, post-norm": ("base", {}),
    "encoder-decoder, pre-norm": ("tiny", {}),
    "decoder, gpt2": ("gpt2", {}),
    "decoder, llama": ("llama", {"kv_heads": 2}),
    "encoder, masked": ("bert-base", {"head": {"kind": "masked"}}),
    "decoder, untied, alibi": ("gpt2", {"head": {"tied": False}, "positions": {"kind": "alibi"}}),
}


def loss_of(built: Any, ids: Tensor, wanted: Tensor) -> Tensor:
    shifted = torch.cat((torch.zeros_like(wanted[:, :1]), wanted[:, :-1]), 1)
    logits = built(ids, shifted) if built.config.kind == "encoder-decoder" else built(ids)
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


@pytest.mark.parametrize("name", LEARNERS)
def test_starts_at_ln_v_and_overfits_one_batch(name: str) -> None:
    """Knowing nothing costs ln V; logits of variance one add at most a half, and their luck a little."""
    preset, changes = LEARNERS[name]
    torch.manual_seed(0)
    no_dropout = {"residual": 0.0, "embedding": 0.0, "attention": 0.0}
    built = clearhead.build(clearhead.configure(preset, **SMALL, **changes, dropout=no_dropout))
    ids, wanted = tokens(4, 9, vocabulary=V), tokens(4, 9, seed=1, vocabulary=V)
    start = loss_of(built, tokens(16, 40, vocabulary=V), tokens(16, 40, seed=1, vocabulary=V)).item()
    assert abs(start - math.log(V)) < (0.7 if built.config.init == "xavier" else 0.1)
    optimizer = torch.optim.Adam(built.parameters(), lr=3e-3)
    for _ in range(80):
        loss = loss_of(built, ids, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss_of(built, ids, wanted) < 0.05


@pytest.mark.parametrize("kind", ["tokens", "pooled"])
def test_classifiers_overfit_one_batch(kind: str) -> None:
    torch.manual_seed(0)
    built = clearhead.build(config("encoder", head={"kind": kind, "classes": 5}))
    ids, real = tokens(6, 8), lengths_to_real([8, 8, 5, 3, 2, 1], 8)
    labels = tokens(*((6, 8) if kind == "tokens" else (6,)), seed=1, vocabulary=5)
    optimizer = torch.optim.Adam(built.parameters(), lr=3e-3)
    for _ in range(100):
        logits = built(ids, real)
        loss = F.cross_entropy(
            logits[real] if kind == "tokens" else logits, labels[real] if kind == "tokens" else labels
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
    assert logits.shape == ((6, 8, 5) if kind == "tokens" else (6, 5))


def test_seed_decides_the_start() -> None:
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(clearhead.build(config("encoder-decoder")).state_dict())
    all_close(states[0], states[1], 0.0)
    assert not torch.equal(states[0]["embedding.weight"], states[2]["embedding.weight"])


def test_deep_gpt2_start_keeps_the_residual_road_calm() -> None:
    """Deviation 0.02, divided by √(2·layers) where a matrix writes into the road."""
    built = clearhead.build(config(d_model=64, d_ff=128, decoder_layers=8, init="gpt2"))
    for name, parameter in built.named_parameters():
        if name.endswith(("self_attention.out.weight", "outer.weight")):
            assert parameter.std().item() == pytest.approx(0.02 / 4, rel=0.1)
        elif name.endswith(("query.weight", "inner.weight")):
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1)


# ---- modes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_acts_in_training_only(kind: str) -> None:
    built = model(kind, dropout={"residual": 0.2, "embedding": 0.2, "attention": 0.2, "hidden": 0.2})
    inputs = (tokens(2, 9), tokens(2, 5)) if kind == "encoder-decoder" else (tokens(2, 9),)
    assert torch.equal(built(*inputs), built(*inputs))
    built.train()
    assert not torch.equal(built(*inputs), built(*inputs))
    torch.manual_seed(3)
    once = built(*inputs)
    torch.manual_seed(3)
    assert torch.equal(once, built(*inputs))
    still = model(kind)
    assert torch.equal(still.train()(*inputs), still.eval()(*inputs))


def test_forward_is_encode_decode_head() -> None:
    built, source, target = model("encoder-decoder"), tokens(2, 5), tokens(2, 4, seed=1)
    real, written = lengths_to_real([5, 3], 5), lengths_to_real([4, 2], 4)
    memory = built.encode(source, real)
    whole = built.head(built.decode(target, memory, real, written))
    assert torch.equal(built(source, target, real, written), whole)
    assert torch.equal(built.hidden(source, target, real, written), built.decode(target, memory, real, written))


def test_encoder_heads() -> None:
    ids = tokens(2, 5)
    pooled = model("encoder", head={"kind": "pooled"})
    close(pooled(ids), torch.tanh(pooled.output.transform(pooled.hidden(ids)[:, 0])))
    padded, real = torch.cat((tokens(2, 3, seed=1), ids), 1), lengths_to_real([5, 5], 8, "left")
    close(pooled(padded, real), pooled(ids))  # the first token that is real, not the first slot
    bare = model("encoder")
    assert torch.equal(bare(ids), bare.hidden(ids))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize(
    "head",
    [
        {"kind": "none"},
        {"kind": "masked", "bias": True},
        {"kind": "tokens", "classes": 3},
        {"kind": "pooled"},
        {"kind": "pooled", "classes": 3},
    ],
    ids=str,
)
def test_padding_changes_nothing_for_any_head(head: dict[str, Any], kernels: str, side: str) -> None:
    built, lengths = model("encoder", head=head, kernels=kernels), [6, 4, 1]
    ids, real = tokens(3, 6), lengths_to_real(lengths, 6, side)
    together = built(ids, real)
    for row, length in enumerate(lengths):
        alone = built(ids[row : row + 1, real[row]])[0]
        close(together[row] if head["kind"] == "pooled" else together[row, real[row]], alone, name=f"length {length}")


@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_kernels_name_the_twins_that_run(kernels: str) -> None:
    """They agree in value, so that nothing but this would notice if the plain ones were never run."""
    built, fused = model("encoder-decoder", kernels=kernels), kernels == "fused"
    said = [module.fused for module in built.modules() if hasattr(module, "fused")]
    assert said
    assert set(said) == {fused}
    for module in built.modules():
        if isinstance(module, MultiHeadAttention):
            assert module.attend is (fused_attention if fused else attention)
        if isinstance(module, FeedForward):
            assert module.activate is (FUSED if fused else PLAIN)["relu"]
        if isinstance(module, LayerNorm):
            assert module.normalise is (fused_layer_norm if fused else layer_norm)
    assert RMSNorm(config(kernels=kernels)).normalise is (fused_rms_norm if fused else rms_norm)


@pytest.mark.parametrize(("activation", "wanted"), [("relu", F.relu), ("gelu", F.gelu), ("swiglu", F.gelu)])
def test_the_masked_head_activates_as_the_model_does(activation: str, wanted: Any) -> None:
    """A gate needs two matrices, which BERT's head does not have: with SwiGLU it is GELU."""
    head = model("encoder", head={"kind": "masked"}, activation=activation).output
    states = normal(5, 24)
    close(head.activate(head.transform(states)), wanted(head.transform(states)))


@pytest.mark.parametrize(("positions", "activation"), list(zip(POSITIONS, cycle(ACTIVATIONS), strict=False)))
def test_pickles_and_copies(positions: str, activation: str) -> None:
    """Nothing in a model is a lambda or a closure, its tables of positions included."""
    built, ids = model(positions=positions, activation=activation), tokens(2, 5)
    wanted = built(ids)
    for twin in (pickle.loads(pickle.dumps(built)), copy.deepcopy(built)):
        assert torch.equal(twin(ids), wanted)


# ---- packed documents ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kernels", ["plain", "fused"])
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize("lengths", [[3, 1, 4], [60, 2, 41]], ids=str)
def test_packed_documents_are_as_alone(lengths: list[int], kind: str, kernels: str, positions: str) -> None:
    """In one row, in one padded row, and with a window that reaches across their borders."""
    for window in (None, 3):
        built = model(kind, positions=positions, kernels=kernels, window=window)
        parts = [tokens(1, length, seed=length) for length in lengths]
        numbers = torch.tensor([[number for number, length in enumerate(lengths) for _ in range(length)]])
        wanted = torch.cat([built(part) for part in parts], 1)
        close(built(torch.cat(parts, 1), documents=numbers), wanted)
        padded, real = F.pad(torch.cat(parts, 1), (2, 0)), F.pad(torch.ones_like(numbers).bool(), (2, 0))
        close(built(padded, real, documents=F.pad(numbers, (2, 0), value=-1))[:, 2:], wanted)


# ---- refusals ------------------------------------------------------------------------------------------------------


def call(kind: str, ids: Tensor, **named: Any) -> Any:
    built = model(kind)
    if kind == "encoder-decoder":
        named = {f"source_{key}": value for key, value in named.items()}
        return built(ids, tokens(len(ids), 3), **named)
    return built(ids, **named)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[1, 29]]), r"token ids must be between 0 and 28 \(the table has 29 rows\); found 29"),
        (torch.tensor([[-1, 2]]), r"between 0 and 28 .*; found -1"),
        (torch.zeros(2, 0, dtype=torch.long), r"\(batch, length\) with length > 0; found torch.int64 \(2, 0\)"),
        (torch.tensor([1, 2]), r"shape \(batch, length\) with length > 0; found torch.int64 \(2,\)"),
        (torch.zeros(1, 2, 3, dtype=torch.long), r"found torch.int64 \(1, 2, 3\)"),
        (torch.zeros(2, 3), "token ids, int64 or int32, .*found torch.float32"),
        (torch.zeros(2, 3, dtype=torch.bool), "found torch.bool"),
    ],
    ids=str,
)
def test_refuses_tokens(kind: str, ids: Tensor, message: str) -> None:
    with pytest.raises(clearhead.InputError, match=message):
        call(kind, ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "real",
    [
        torch.ones(2, 4, dtype=torch.bool),
        torch.ones(3, 3, dtype=torch.bool),
        torch.ones(1, 3, dtype=torch.bool),
        torch.ones(3, dtype=torch.bool),
        torch.ones(2, 1, 1, 3, dtype=torch.bool),
        torch.ones(2, 3),
        torch.ones(2, 3, dtype=torch.long),
    ],
    ids=str,
)
def test_refuses_what_is_not_a_mask_of_real_tokens(kind: str, real: Tensor) -> None:
    name = "source_real" if kind == "encoder-decoder" else "real"
    wanted = rf"^{name} must be a boolean tensor of shape \(batch, length\) = \(2, 3\), True at real tokens; found "
    with pytest.raises(clearhead.InputError, match=wanted) as error:
        call(kind, tokens(2, 3), real=real)
    assert f"{real.dtype} {tuple(real.shape)}" in str(error.value)


def test_refuses_batches_and_padding_that_do_not_fit() -> None:
    built = model("encoder-decoder")
    with pytest.raises(clearhead.InputError, match="the same batch: 2 and 3"):
        built(tokens(2, 5), tokens(3, 5))
    with pytest.raises(clearhead.InputError, match=r"source_real .* = \(2, 5\).*found torch.bool \(2, 4\)"):
        built.decode(tokens(2, 3), built.encode(tokens(2, 5)), torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(clearhead.InputError, match=r"target_real .* = \(2, 3\).*found torch.bool \(2, 5\)"):
        built(tokens(2, 5), tokens(2, 3), None, torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(clearhead.InputError, match=r"source_tokens must be token ids"):
        built(tokens(5), tokens(2, 3))
    with pytest.raises(clearhead.InputError, match=r"target_tokens must be token ids"):
        built(tokens(2, 5), tokens(3))


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize(
    "documents", [torch.ones(2, 4, dtype=torch.long), torch.ones(3).long(), torch.ones(2, 3)], ids=str
)
def test_refuses_documents(kind: str, documents: Tensor) -> None:
    with pytest.raises(clearhead.InputError, match=r"documents must number .* shape \(2, 3\); found torch\.") as error:
        model(kind)(tokens(2, 3), documents=documents)
    assert f"{documents.dtype} {tuple(documents.shape)}" in str(error.value)


def test_refuses_segments() -> None:
    with pytest.raises(clearhead.InputError, match=r"no segment embeddings \(embedding.segments = 0\)"):
        model("encoder")(tokens(2, 3), segments=tokens(2, 3, vocabulary=2))
    two = model("encoder", embedding={"segments": 2})
    with pytest.raises(clearhead.InputError, match=r"segment ids must be between 0 and 1 .*; found 2"):
        two(tokens(2, 3), segments=torch.full((2, 3), 2))
    assert torch.equal(two(tokens(2, 3)), two(tokens(2, 3), segments=torch.zeros(2, 3, dtype=torch.long)))
