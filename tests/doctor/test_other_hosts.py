"""The hosts in other styles compute what PyTorch's own layers compute; a bug can be planted in healthy code only."""

import pytest
import torch
from torch import nn

from clearhead.doctor.hosts import by_id, sequence_first

LENGTH, MEMORY, BATCH, WIDTH, HEADS = 5, 7, 2, 12, 3


def shaken(layer: nn.Module) -> nn.Module:
    """In float64, with every bias and gain away from its first value."""
    torch.manual_seed(3)
    for parameter in layer.double().eval().parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def renamed(layer: nn.Module, names: dict[str, str]) -> dict[str, torch.Tensor]:
    state = layer.state_dict()
    for ours, theirs in names.items():
        state = {name.replace(ours, theirs): tensor for name, tensor in state.items()}
    return state


def last_is_padding(length: int) -> torch.Tensor:
    """(B, T), True at real tokens: the first row ends in padding."""
    return torch.arange(length).lt(length - 1) | torch.tensor([[False], [True]])


@pytest.mark.parametrize("padded", [False, True])
def test_sequence_first_layers_are_torchs(padded: bool) -> None:
    names = {"cross_attn": "multihead_attn", "ffn.0": "linear1", "ffn.3": "linear2"}
    x, memory = torch.randn(LENGTH, BATCH, WIDTH).double(), torch.randn(MEMORY, BATCH, WIDTH).double()
    hidden = ~last_is_padding(MEMORY) if padded else None
    mask = sequence_first.key_padding_mask(last_is_padding(MEMORY) if padded else None, x.dtype)
    causal = sequence_first.square_subsequent_mask(LENGTH, x.dtype)

    encoder = shaken(sequence_first.EncoderLayer(WIDTH, HEADS, 0.0))
    peer: nn.Module = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0).double().train()
    peer.load_state_dict(renamed(encoder, names))
    torch.testing.assert_close(encoder(memory, mask), peer(memory, src_key_padding_mask=hidden))

    decoder = shaken(sequence_first.DecoderLayer(WIDTH, HEADS, 0.0))
    peer = nn.TransformerDecoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0).double()
    peer.load_state_dict(renamed(decoder, names))
    expected = peer(x, memory, tgt_mask=causal, memory_key_padding_mask=hidden)
    torch.testing.assert_close(decoder(x, x, memory, causal, mask)[0], expected)


def test_layer_of_the_translator_by_id_is_torchs() -> None:
    layer = shaken(by_id.Layer(WIDTH, HEADS, 0.0, cross=False))
    peer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True).double()
    state = renamed(layer, {"self_attn_norm": "norm1", "ffn_norm": "norm2", "fc1": "linear1", "fc2": "linear2"})
    for kind in ("weight", "bias"):
        parts = [state.pop(f"self_attn.{name}_proj.{kind}") for name in "qkv"]
        state[f"self_attn.in_proj_{kind}"] = torch.cat(parts)
    peer.load_state_dict(state)
    x, real = torch.randn(BATCH, LENGTH, WIDTH).double(), last_is_padding(LENGTH)
    ours = layer(x, real[:, None, None, :])
    torch.testing.assert_close(ours, peer.train()(x, src_key_padding_mask=~real))
