"""Attention: the plain function against loops and gradcheck, its fused twin against it, and what it refuses."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.model.attention import (
    MultiHeadAttention,
    attention,
    fused_attention,
    merge_heads,
    softmax_or_zeros,
    split_heads,
)
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.positions import alibi_bias, alibi_slopes
from tests.model.helpers import all_close, close, config, gradients, lengths_to_real, normal, randomise, tokens
from tests.model.helpers import model as fresh

B, H, G, D = 3, 6, 2, 5
# queries and keys: few, more keys than the short kernel takes, one query over many, more queries than keys
SIZES = [(1, 1), (7, 7), (5, 9), (1, 70), (66, 66), (70, 90), (80, 65), (9, 4)]


def qkv(queries: int, keys: int, groups: int = H, grad: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    return (
        normal(B, H, queries, D, seed=1, grad=grad),
        normal(B, groups, keys, D, seed=2, grad=grad),
        normal(B, groups, keys, D, seed=3, grad=grad),
    )


def masks(queries: int, keys: int) -> dict[str, Tensor | None]:
    """Every accepted form; "blind" hides everything from some queries, in one row from all of them."""
    coin = torch.rand(B, H, queries, keys, generator=torch.Generator().manual_seed(4)) < 0.6
    blind = coin.clone()
    blind[0] = False
    blind[1, 2, queries // 2] = False
    real = lengths_to_real([keys, max(1, keys // 2), 1], keys)
    return {
        "none": None,
        "(S,T)": coin[0, 0],
        "(B,1,1,T)": real[:, None, None],
        "(1,H,S,1)": coin[:1, :, :, :1],
        "(B,H,S,T)": coin,
        "blind": blind,
    }


def by_loops(
    q: Tensor, k: Tensor, v: Tensor, may_attend: Tensor | None, bias: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """The definition, one number at a time, in Python floats."""
    queries, keys = q.size(2), k.size(2)
    allowed = torch.ones(B, H, queries, keys, dtype=torch.bool)
    if may_attend is not None:
        allowed = allowed & may_attend
    output, weights = torch.zeros_like(q), torch.zeros(B, H, queries, keys, dtype=q.dtype)
    for b in range(B):
        for h in range(H):
            g = h // (H // k.size(1))  # neighbouring heads share
            for i in range(queries):
                seen = [j for j in range(keys) if allowed[b, h, i, j] and (not causal or j <= i + keys - queries)]
                scores = [sum(float(x * y) for x, y in zip(q[b, h, i], k[b, g, j], strict=True)) for j in seen]
                scores = [score / math.sqrt(D) for score in scores]
                if bias is not None:
                    full = bias.expand(B, H, queries, keys)
                    scores = [score + float(full[b, h, i, j]) for score, j in zip(scores, seen, strict=True)]
                total = sum(map(math.exp, scores))
                for j, score in zip(seen, scores, strict=True):
                    weights[b, h, i, j] = math.exp(score) / total
                    output[b, h, i] += math.exp(score) / total * v[b, g, j]
    return output, weights


@pytest.mark.parametrize("mask", masks(1, 1))
@pytest.mark.parametrize("groups", [H, G, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_is_the_definition(causal: bool, groups: int, mask: str) -> None:
    q, k, v = qkv(3, 5, groups, grad=False)
    may_attend, bias = masks(3, 5)[mask], normal(1, H, 3, 5, seed=5)
    found, weights = attention(q, k, v, may_attend, bias, causal)
    wanted, wanted_weights = by_loops(q, k, v, may_attend, bias, causal)
    close(found, wanted)
    close(weights, wanted_weights)
    close(fused_attention(q, k, v, may_attend, bias, causal)[0], wanted)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("mask", masks(1, 1))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("groups", "alibi"), [(H, False), (G, True), (G, False), (H, True)])
def test_twins_agree(size: tuple[int, int], mask: str, causal: bool, groups: int, alibi: bool) -> None:
    """Values and gradients, to rounding in float64; also where a query sees nothing."""
    queries, keys = size
    inputs = qkv(queries, keys, groups)
    bias = None
    if alibi:
        at = torch.arange(keys)[None]
        bias = alibi_bias(at[:, -1:] - torch.arange(queries).flip(0), at, alibi_slopes(H))
    results = []
    for twin in (attention, fused_attention):
        out, _ = twin(*inputs, masks(queries, keys)[mask], bias, causal)
        results.append((out, *torch.autograd.grad((out * normal(*out.shape, seed=6)).sum(), inputs)))
    for name, mine, truth in zip(("output", "q", "k", "v"), results[1], results[0], strict=True):
        assert torch.isfinite(truth).all(), name
        close(mine, truth, name=name)


@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize("keys", [5, 70])
def test_query_that_sees_nothing_gets_zeros(keys: int, function: Any) -> None:
    q, k, v = qkv(4, keys, G)
    allowed = masks(4, keys)["blind"]
    out, _ = function(q, k, v, allowed)
    assert torch.count_nonzero(out[0]) == 0
    assert torch.count_nonzero(out[1, 2, 2]) == 0
    assert torch.count_nonzero(out[1, 2, 1]) > 0
    for gradient in torch.autograd.grad(out.pow(2).sum(), (q, k, v)):
        assert torch.isfinite(gradient).all()
        assert torch.count_nonzero(gradient[0]) == 0


@pytest.mark.parametrize("keys", [5, 70])
def test_values_may_have_a_width_of_their_own(keys: int) -> None:
    """The paper's d_v beside its d_k."""
    q, k, _ = qkv(4, keys)
    v = normal(B, H, keys, 2)
    close(fused_attention(q, k, v)[0], attention(q, k, v)[0])


def test_softmax() -> None:
    scores = normal(4, 9)
    close(softmax_or_zeros(scores), scores.softmax(-1))
    close(softmax_or_zeros(scores + 1e5), scores.softmax(-1), 1e-9)
    nothing = torch.full((2, 3), -math.inf)
    assert torch.equal(softmax_or_zeros(nothing), torch.zeros(2, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_softmax_rounds_once(dtype: torch.dtype) -> None:
    """Computed in float32, so a 16-bit weight is the exact one, rounded: at most half a step of the type away."""
    scores = (normal(8, 500) * 2).to(dtype)
    found, wanted = softmax_or_zeros(scores).double(), scores.double().softmax(-1)
    usual = wanted > 1e-4  # below, float16 has fewer digits
    error = ((found - wanted).abs() / wanted)[usual].max()
    assert error < 0.51 * torch.finfo(dtype).eps


def test_gradcheck() -> None:
    for groups, mask, causal in ((6, "none", False), (2, "blind", True), (1, "(S,T)", False)):
        q, k, v = qkv(2, 3, groups)
        bias = normal(1, H, 2, 3, grad=True)

        def output(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: str = mask, causal: bool = causal) -> Any:
            return attention(q, k, v, masks(2, 3)[mask], bias, causal)

        assert torch.autograd.gradcheck(output, (q, k, v, bias))
    assert torch.autograd.gradcheck(softmax_or_zeros, normal(3, 4, grad=True))
    assert torch.autograd.gradcheck(partial(split_heads, heads=3), normal(2, 4, 6, grad=True))
    assert torch.autograd.gradcheck(merge_heads, normal(2, 3, 4, 2, grad=True))


def test_heads_are_split_by_features_not_by_tokens() -> None:
    x = torch.arange(2 * 3 * 8).view(2, 3, 8)
    heads = split_heads(x, 4)
    for b in range(2):
        for h in range(4):
            for s in range(3):
                assert heads[b, h, s].tolist() == x[b, s, 2 * h : 2 * h + 2].tolist()
    assert torch.equal(merge_heads(heads), x)


# ---- the module ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key_value_heads", [6, 2])
def test_separate_projections_are_the_merged_one(key_value_heads: int) -> None:
    """Section 3.2.2: Concat(head₁ … head_H) W_O with a W_Q, W_K, W_V for each head."""
    module = randomise(MultiHeadAttention(config(heads=6, kv_heads=key_value_heads))).double()
    x, width = normal(2, 5, 24), 4
    heads = []
    for h in range(6):
        g = h // (6 // key_value_heads)
        rows, shared = slice(width * h, width * (h + 1)), slice(width * g, width * (g + 1))
        q = x @ module.query.weight[rows].t() + module.query.bias[rows]
        k = x @ module.key.weight[shared].t() + module.key.bias[shared]
        v = x @ module.value.weight[shared].t() + module.value.bias[shared]
        heads.append(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(width), -1) @ v)
    wanted = torch.cat(heads, -1) @ module.out.weight.t() + module.out.bias
    close(module(x, AttentionInputs()), wanted)


def test_parameters_do_not_depend_on_the_number_of_heads() -> None:
    counts = {clearhead.model.count_parameters(config("encoder-decoder", heads=h)) for h in (1, 2, 4, 12)}
    assert len(counts) == 1


def test_mechanism_can_be_swapped() -> None:
    """An experiment passes another `attend`, or puts another `split_heads` in place; no patching of modules."""

    def sharper(q: Tensor, *others: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
        return attention(2 * q, *others, **named)

    choice = config("encoder-decoder")
    usual = randomise(clearhead.build(choice)).double()
    swapped = randomise(clearhead.build(choice, attend=sharper)).double()
    source, target = tokens(2, 5), tokens(2, 3, seed=1)
    assert not torch.allclose(swapped(source, target), usual(source, target))
    attentions = [module for module in usual.modules() if isinstance(module, MultiHeadAttention)]
    for module in attentions:
        module.query.weight.data *= 2
        module.query.bias.data *= 2
    close(swapped(source, target), usual(source, target))  # so every attention of every layer was swapped
    attentions[0].split_heads = lambda x, heads: x.view(x.size(0), heads, x.size(1), -1)
    assert not torch.allclose(swapped(source, target), usual(source, target))


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder", "encoder"])
@pytest.mark.parametrize("changes", [{}, {"kv_heads": 2, "positions": "alibi", "window": 3, "activation": "swiglu"}])
@pytest.mark.parametrize("length", [9, 80])
def test_models_agree_with_plain_and_fused_kernels(kind: str, changes: dict[str, Any], length: int) -> None:
    real = lengths_to_real([length, length // 2, 1], length, "left")
    ids, documents = tokens(3, length), torch.arange(length)[None].expand(3, -1) // 5
    results = []
    for kernels in ("plain", "fused"):
        model = fresh(kind, kernels=kernels, **changes)
        if kind == "encoder-decoder":
            out = model(ids, tokens(3, 7, seed=1), real)
        else:
            out = model(ids, real, documents=documents)
        (out * normal(*out.shape)).sum().backward()
        results.append((out, gradients(model)))
    close(results[1][0], results[0][0])
    all_close(results[1][1], results[0][1])


@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize("keys", [3, 100])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("heads", [6, 2])
def test_an_empty_batch_gives_an_empty_result(function: Any, queries: int, keys: int, heads: int) -> None:
    q, k, v = normal(0, 6, queries, 5), normal(0, heads, keys, 5), normal(0, heads, keys, 7)
    masks = (None, torch.ones(queries, keys, dtype=torch.bool), torch.ones(0, 1, 1, keys, dtype=torch.bool))
    for mask in masks:
        for bias in (None, torch.zeros(0, 6, queries, keys, dtype=q.dtype)):
            assert function(q, k, v, mask, bias)[0].shape == (0, 6, queries, 7)


# ---- refusals ------------------------------------------------------------------------------------------------------

FLOATS = torch.zeros(4, 5)


@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (torch.ones(3, 4, 5, dtype=torch.bool), r"torch.bool \(3, 4, 5\)"),
        (torch.ones(5, dtype=torch.bool), r"torch.bool \(5,\)"),
        (torch.ones(5, 4, dtype=torch.bool), r"torch.bool \(5, 4\)"),
        (torch.ones(1, 5, dtype=torch.bool), r"torch.bool \(1, 5\)"),  # 2-D means (S, T), and nothing else
        (torch.ones(3, 6, 4, 4, dtype=torch.bool), r"torch.bool \(3, 6, 4, 4\)"),
        (torch.ones(2, 1, 1, 5, dtype=torch.bool), r"torch.bool \(2, 1, 1, 5\)"),
        (FLOATS, r"torch.float32 \(4, 5\)"),
        (FLOATS.long(), r"torch.int64 \(4, 5\)"),
        (FLOATS.to(torch.uint8), r"torch.uint8 \(4, 5\)"),
    ],
    ids=str,
)
def test_refuses_masks(function: Any, mask: Tensor, found: str) -> None:
    accepted = (
        r"boolean \(True = may attend\), of shape \(S, T\) = \(4, 5\) or .* \(B, H, S, T\) = \(3, 6, 4, 5\); found "
    )
    with pytest.raises(clearhead.InputError, match=accepted + found):
        function(*qkv(4, 5), mask)


@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((3, 6, 4, 5), (3, 6, 7, 4), (3, 6, 7, 4)),  # widths of q and k
        ((3, 6, 4, 5), (3, 4, 7, 5), (3, 4, 7, 5)),  # 4 does not divide 6
        ((3, 6, 4, 5), (3, 6, 7, 5), (3, 6, 8, 5)),  # keys and values
        ((3, 6, 4, 5), (2, 6, 7, 5), (2, 6, 7, 5)),  # batches
        ((3, 6, 4, 5), (1, 6, 7, 5), (1, 6, 7, 5)),
        ((6, 4, 5), (6, 4, 5), (6, 4, 5)),  # a dimension is missing
        ((3, 6, 4, 5), (3, 6, 7, 5), (6, 7, 5)),
    ],
)
def test_refuses_inputs_that_do_not_fit_together(function: Any, q: tuple, k: tuple, v: tuple) -> None:
    with pytest.raises(clearhead.InputError, match=r"needs q \(B, H, S, d\).*found q \(") as error:
        function(normal(*q), normal(*k), normal(*v))
    for shape in (q, k, v):
        assert str(shape) in str(error.value)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_queries_and_keys_are_normalised_head_by_head(kind: str) -> None:
    """As in Qwen 3: one norm of the width of a head for all heads, before the positions turn them."""
    chosen = config(qk_norm=True, kv_heads=2, norm={"kind": kind})
    ours = randomise(MultiHeadAttention(chosen)).double()
    assert ours.query_norm is not None
    assert ours.key_norm is not None
    x = normal(B, 7, chosen.d_model)
    q = torch.stack([ours.query_norm(one) for one in ours.query(x).split(chosen.d_head, -1)], 1)
    k = torch.stack([ours.key_norm(one) for one in ours.key(x).split(chosen.d_head, -1)], 1)
    v = torch.stack(ours.value(x).split(chosen.d_head, -1), 1)
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    close(ours(x, AttentionInputs()), ours.out(torch.cat(mixed.unbind(1), -1)))
