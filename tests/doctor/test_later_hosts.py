"""The latest hosts compute what other people's layers compute; a bug can be planted in healthy code only."""

import pytest
import torch
from torch import nn

from clearhead.doctor.hosts import folded, parallel, relative

transformers = pytest.importorskip("transformers")


def shaken(model: nn.Module) -> nn.Module:
    """In float64, with every bias and gain away from its first value."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.double().eval().parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def renamed(model: nn.Module, names: dict[str, str]) -> dict[str, torch.Tensor]:
    state = model.state_dict()
    for ours, theirs in names.items():
        state = {name.replace(ours, theirs): tensor for name, tensor in state.items()}
    return state


def test_the_relative_host_is_t5() -> None:
    ours = shaken(relative.RelativeForConditionalGeneration(relative.RelativeConfig()))
    config = transformers.T5Config(
        vocab_size=61, d_model=24, num_heads=3, d_kv=8, num_layers=2, d_ff=48, feed_forward_proj="gated-gelu",
        dropout_rate=0.0, tie_word_embeddings=True,
    )  # fmt: skip
    peer = transformers.T5ForConditionalGeneration(config).double().eval()
    first = "block.0.layer.0.SelfAttention.relative_attention_bias"
    names = {
        "relative_bias.table": first,
        "self_norm": "layer.0.layer_norm", "self_attention": "layer.0.SelfAttention",
        "cross_norm": "layer.1.layer_norm", "cross_attention": "layer.1.EncDecAttention",
        "final_norm": "final_layer_norm", "ff.w": "layer.FF.DenseReluDense.w", "ff_norm": "layer.FF.layer_norm",
    }  # fmt: skip
    state = renamed(ours, names)
    state = {
        name.replace("layer.FF", f"layer.{1 + name.startswith('decoder')}"): value for name, value in state.items()
    }
    missing, unexpected = peer.load_state_dict(state, strict=False)
    assert not unexpected
    assert all("embed_tokens" in name for name in missing)
    source, target = torch.randint(2, 61, (3, 9)), torch.randint(2, 61, (3, 150))
    source[1, 6:] = relative.PAD
    expected = peer(source, attention_mask=source.ne(relative.PAD), decoder_input_ids=target).logits
    # theirs takes its softmax in float32
    torch.testing.assert_close(ours(source, target).logits, expected, rtol=1e-4, atol=1e-4)


def test_a_layer_with_folded_heads_is_torchs() -> None:
    ours = shaken(folded.SentenceLayer(24, 3, 0.0))
    peer = nn.TransformerEncoderLayer(24, 3, 96, 0.0, "gelu").double()
    names = {"self_attn_layer_norm": "norm1", "final_layer_norm": "norm2", "fc1": "linear1", "fc2": "linear2"}
    state = renamed(ours, names)
    for kind in ("weight", "bias"):
        state[f"self_attn.in_proj_{kind}"] = torch.cat([state.pop(f"self_attn.{name}_proj.{kind}") for name in "qkv"])
    peer.load_state_dict(state)
    x = torch.randn(7, 2, 24).double()
    hidden = torch.arange(7).ge(5) & torch.tensor([[True], [False]])
    added = torch.zeros(2, 7).double().masked_fill(hidden, folded.hidden_value(x.dtype))
    torch.testing.assert_close(ours(x, None, added, None), peer.train()(x, src_key_padding_mask=hidden))


def test_the_parallel_host_is_gpt_neox() -> None:
    shape = parallel.Shape(heads=6, kv_heads=6, window=64)
    ours = shaken(parallel.ParallelLM(shape))
    config = transformers.GPTNeoXConfig(
        vocab_size=61, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, intermediate_size=192,
        rotary_pct=0.5, attention_bias=False, use_parallel_residual=True, hidden_act="gelu", hidden_dropout=0.0,
        attention_dropout=0.0, attn_implementation="eager",
    )  # fmt: skip
    peer = transformers.GPTNeoXForCausalLM(config).double().eval()
    params = dict(ours.get_submodule("params").named_parameters())
    state = {
        "gpt_neox.embed_in.weight": params["embed"], "lm_head.weight": params["unembed"].T,
        "gpt_neox.final_layer_norm.weight": params["final_gain"],
        "gpt_neox.final_layer_norm.bias": params["final_shift"],
    }  # fmt: skip
    for i in range(2):
        # theirs keeps query, key and value of each head together
        fused = torch.stack([params[name][i].T.view(6, 8, 48) for name in ("wq", "wk", "wv")], dim=1)
        layer = {
            "input_layernorm.weight": params["ln1_gain"][i], "input_layernorm.bias": params["ln1_shift"][i],
            "post_attention_layernorm.weight": params["ln2_gain"][i],
            "post_attention_layernorm.bias": params["ln2_shift"][i],
            "attention.query_key_value.weight": fused.reshape(144, 48),
            "attention.dense.weight": params["wo"][i].T,
            "mlp.dense_h_to_4h.weight": params["up"][i].T, "mlp.dense_h_to_4h.bias": params["up_shift"][i],
            "mlp.dense_4h_to_h.weight": params["down"][i].T, "mlp.dense_4h_to_h.bias": params["down_shift"][i],
        }  # fmt: skip
        state.update({f"gpt_neox.layers.{i}.{name}": value for name, value in layer.items()})
    peer.load_state_dict(state)
    tokens = torch.randint(1, 61, (2, 11))
    # theirs takes its softmax and its angles in float32
    torch.testing.assert_close(ours(tokens)[0], peer(tokens).logits, rtol=1e-4, atol=1e-4)
