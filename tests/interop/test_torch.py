"""The same numbers as torch's own layers, forward and backward, with the same weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.interop.families.torch_layers import ATTENTION, DECODER_LAYER, ENCODER_LAYER, WHOLE
from clearhead.interop.weights import load_weights, row, to_ours
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.layer import TransformerLayer
from clearhead.model.masks import combine, padding_mask
from clearhead.model.norm import LayerNorm
from tests.model.helpers import all_close, close, config, gradients, lengths_to_real, model, normal, randomise

# batch, queries, keys, width, heads: distinct primes, all the same, one token, one head
SIZES = [(3, 7, 5, 33, 11), (5, 5, 5, 25, 5), (1, 1, 1, 6, 2), (2, 70, 67, 9, 1)]
KERNELS = ["plain", "fused"]
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # a fast path of theirs that steps aside
MASKS = ["none", "causal", "padding", "both"]


def same(ours: nn.Module, theirs: nn.Module, rows: Any, found: Tensor, wanted: Tensor, inputs: list[Tensor]) -> None:
    """Outputs, gradients of the inputs and gradients of every parameter."""
    close(found, wanted)
    weight = normal(*wanted.shape, seed=9)
    mine, their = (torch.autograd.grad((out * weight).sum(), inputs, retain_graph=True) for out in (found, wanted))
    for one, other in zip(mine, their, strict=True):
        close(one, other)
    ((found + wanted) * weight).sum().backward()
    all_close(gradients(ours), to_ours(gradients(theirs), rows))


def masked(kind: str, batch: int, queries: int, keys: int) -> tuple[AttentionInputs, dict[str, Tensor]]:
    """The same mask in our words and in torch's, where True hides. Every query keeps at least one key."""
    lengths = [max(1, keys - 2 * row) for row in range(batch)]
    real = lengths_to_real(lengths, keys)
    causal = torch.ones(queries, keys, dtype=torch.bool).tril(max(0, keys - queries))
    ours: Tensor | None = None
    theirs: dict[str, Tensor] = {}
    if kind in ("causal", "both"):
        ours = causal
        theirs["attn_mask"] = ~causal
    if kind in ("padding", "both"):
        ours = combine(ours, real[:, None, None])
        theirs["key_padding_mask"] = ~real
    return AttentionInputs(ours), theirs


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_multi_head_attention(size: tuple[int, ...], mask: str, kernels: str) -> None:
    batch, queries, keys, width, heads = size
    theirs = randomise(nn.MultiheadAttention(width, heads, batch_first=True, dtype=torch.float64))
    ours = MultiHeadAttention(config(d_model=width, heads=heads, positions="none", kernels=kernels)).double()
    load_weights(ours, to_ours(theirs.state_dict(), ATTENTION))
    x, memory = normal(batch, queries, width, grad=True), normal(batch, keys, width, seed=1, grad=True)
    inputs, hidden = masked(mask, batch, queries, keys)
    wanted, _ = theirs(x, memory, memory, need_weights=False, **hidden)
    same(ours, theirs, ATTENTION, ours(x, inputs, memory), wanted, [x, memory])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_encoder_layer(size: tuple[int, ...], activation: str, mask: str, placement: str, kernels: str) -> None:
    batch, length, _, width, heads = size
    theirs = randomise(
        nn.TransformerEncoderLayer(
            width, heads, 21, 0.0, activation, batch_first=True, norm_first=placement == "pre", dtype=torch.float64
        )
    )
    changes = {"d_model": width, "heads": heads, "d_ff": 21, "activation": activation, "kernels": kernels}
    ours = TransformerLayer(config("encoder", positions="none", norm={"placement": placement}, **changes)).double()
    load_weights(ours, to_ours(theirs.state_dict(), ENCODER_LAYER))
    x = normal(batch, length, width, grad=True)
    inputs, hidden = masked(mask, batch, length, length)
    wanted = theirs(x, src_mask=hidden.get("attn_mask"), src_key_padding_mask=hidden.get("key_padding_mask"))
    same(ours, theirs, ENCODER_LAYER, ours(x, inputs), wanted, [x])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_decoder_layer(size: tuple[int, ...], mask: str, placement: str, kernels: str) -> None:
    batch, queries, keys, width, heads = size
    theirs = randomise(
        nn.TransformerDecoderLayer(
            width, heads, 21, 0.0, batch_first=True, norm_first=placement == "pre", dtype=torch.float64
        )
    )
    changes = {"d_model": width, "heads": heads, "d_ff": 21, "norm": {"placement": placement}, "kernels": kernels}
    ours = TransformerLayer(config("encoder-decoder", positions="none", **changes), crossing=True).double()
    load_weights(ours, to_ours(theirs.state_dict(), DECODER_LAYER))
    x, memory = normal(batch, queries, width, grad=True), normal(batch, keys, width, seed=1, grad=True)
    inputs, hidden = masked(mask, batch, queries, queries)
    over, over_hidden = masked("padding" if mask in ("padding", "both") else "none", batch, queries, keys)
    wanted = theirs(
        x,
        memory,
        tgt_mask=hidden.get("attn_mask"),
        tgt_key_padding_mask=hidden.get("key_padding_mask"),
        memory_key_padding_mask=over_hidden.get("key_padding_mask"),
    )
    same(ours, theirs, DECODER_LAYER, ours(x, inputs, memory, over), wanted, [x, memory])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_transformer(size: tuple[int, ...], padded: bool, placement: str, kernels: str) -> None:
    batch, queries, keys, width, heads = size
    theirs = randomise(
        nn.Transformer(
            width, heads, 2, 3, 21, 0.0, batch_first=True, norm_first=placement == "pre", dtype=torch.float64
        )
    )
    changes: dict[str, Any] = {"d_model": width, "heads": heads, "d_ff": 21, "decoder_layers": 3, "kernels": kernels}
    # torch puts a final norm after both stacks, post-norm or not
    ours = model("encoder-decoder", positions="none", norm={"placement": placement, "final": True}, **changes)
    stacks = nn.ModuleDict({"encoder": ours.encoder, "decoder": ours.decoder})
    load_weights(stacks, to_ours(theirs.state_dict(), WHOLE))
    source, target = normal(batch, keys, width, grad=True), normal(batch, queries, width, seed=1, grad=True)
    real = lengths_to_real([max(1, keys - 2 * row) for row in range(batch)], keys) if padded else None
    real_target = lengths_to_real([max(1, queries - row) for row in range(batch)], queries) if padded else None
    read, written = (torch.zeros(batch, length, dtype=torch.long) for length in (keys, queries))
    memory = ours.encoder(source, ours.encoder.attention_inputs(read, source, real))
    inputs = ours.decoder.attention_inputs(written, target, real_target)
    found = ours.decoder(target, inputs, memory, AttentionInputs(None if real is None else padding_mask(real, memory)))
    wanted = theirs(
        source,
        target,
        tgt_mask=torch.ones(queries, queries, dtype=torch.bool).triu(1),
        src_key_padding_mask=None if real is None else ~real,
        memory_key_padding_mask=None if real is None else ~real,
        tgt_key_padding_mask=None if real_target is None else ~real_target,
    )
    same(stacks, theirs, WHOLE, found, wanted, [source, target])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("width", [1, 2, 33, 512])
def test_layer_norm(width: int, bias: bool, kernels: str) -> None:
    theirs = randomise(nn.LayerNorm(width, eps=1e-3, bias=bias, dtype=torch.float64))
    choice = config(d_model=width, heads=1, positions="none", bias=bias, norm={"epsilon": 1e-3}, kernels=kernels)
    ours = LayerNorm(choice).double()
    load_weights(ours, theirs.state_dict())
    x = normal(3, 5, width, grad=True)
    same(ours, theirs, [row("{p}", "{p}")], ours(x * 3 + 1), theirs(x * 3 + 1), [x])
