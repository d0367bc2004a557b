"""The families we can read: how each names its tensors, and which configuration of ours it is.

`FAMILIES[model_type]` holds a table of names (see weights.py) and a function from their configuration, as written in
`config.json`, to ours. A choice that our models cannot follow is refused by name, never ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.errors import InputError
from clearhead.interop.weights import Row, as_it_is, build_with, flat, row, to_ours, turned, under
from clearhead.model import ModelConfig, Transformer, configure

Settings = Mapping[str, Any]
State = Mapping[str, Tensor]

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Family:
    """Someone else's models, as far as they are models of ours."""

    rows: tuple[Row, ...]
    describe: Callable[[Settings, State], ModelConfig]
    prefix: str = ""  # what some of their classes put before every name, and others do not


def read(model_type: str, settings: Settings, state: State) -> Transformer:
    """Our model with their weights, in float32, or float64 if they are; 16-bit weights lose nothing by it."""
    if model_type not in FAMILIES:
        raise InputError(f"model type {model_type!r} is not one of {', '.join(FAMILIES)}")
    family = FAMILIES[model_type]
    try:
        config = family.describe(settings, state)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the configuration of a {model_type!r} cannot be read: {type(error).__name__}: {error}"
        ) from None
    named = {name.removeprefix(family.prefix): tensor for name, tensor in state.items()}
    weights = to_ours(named, family.rows)
    if "embedding.weight" not in weights:
        raise InputError("missing tensors: embedding.weight")
    return build_with(config, weights)


def activation(settings: Settings, key: str) -> str:
    if settings[key] not in ACTIVATIONS:
        raise InputError(f"{key} = {settings[key]!r} is not one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[settings[key]]


def only(settings: Settings, **wanted: Any) -> None:
    """Refuse a setting that our models cannot follow."""
    for key, value in wanted.items():
        if settings.get(key, value) != value:
            raise InputError(f"{key} = {settings[key]!r} is not supported, only {value!r}")


# ---- torch's own layers: query, key and value in one matrix --------------------------------------------------------

TORCH_ATTENTION = (
    row("in_proj_{p}", "query.{p}", "key.{p}", "value.{p}"),
    row("out_proj.{p}", "out.{p}"),
)
TORCH_ENCODER_LAYER = (
    *under("self_attn.", "self_attention.", TORCH_ATTENTION),
    row("norm1.{p}", "self_attention_residual.norm.{p}"),
    row("linear1.{p}", "feed_forward.inner.{p}"),
    row("linear2.{p}", "feed_forward.outer.{p}"),
    row("norm2.{p}", "feed_forward_residual.norm.{p}"),
)
TORCH_DECODER_LAYER = (
    *under("self_attn.", "self_attention.", TORCH_ATTENTION),
    row("norm1.{p}", "self_attention_residual.norm.{p}"),
    *under("multihead_attn.", "cross_attention.", TORCH_ATTENTION),
    row("norm2.{p}", "cross_attention_residual.norm.{p}"),
    row("linear1.{p}", "feed_forward.inner.{p}"),
    row("linear2.{p}", "feed_forward.outer.{p}"),
    row("norm3.{p}", "feed_forward_residual.norm.{p}"),
)
TORCH = (
    *under("encoder.layers.{n}.", "encoder.layers.{n}.", TORCH_ENCODER_LAYER),
    row("encoder.norm.{p}", "encoder.norm.{p}"),
    *under("decoder.layers.{n}.", "decoder.layers.{n}.", TORCH_DECODER_LAYER),
    row("decoder.norm.{p}", "decoder.norm.{p}"),
)

# ---- GPT-2, and minGPT, which stores its matrices the usual way ----------------------------------------------------


def _gpt2_rows(layout: Callable[[Tensor], Tensor]) -> tuple[Row, ...]:
    layer = (
        row("ln_1.{p}", "self_attention_residual.norm.{p}"),
        row(
            "attn.c_attn.{p}",
            "self_attention.query.{p}",
            "self_attention.key.{p}",
            "self_attention.value.{p}",
            layout=layout,
        ),
        row("attn.c_proj.{p}", "self_attention.out.{p}", layout=layout),
        row("attn.bias"),  # their causal mask, not a weight
        row("attn.masked_bias"),
        row("ln_2.{p}", "feed_forward_residual.norm.{p}"),
        row("mlp.c_fc.{p}", "feed_forward.inner.{p}", layout=layout),
        row("mlp.c_proj.{p}", "feed_forward.outer.{p}", layout=layout),
    )
    return (
        row("wte.weight", "embedding.weight"),
        row("wpe.weight", "embedding.positions.weight"),
        *under("h.{n}.", "decoder.layers.{n}.", layer),
        row("ln_f.{p}", "decoder.norm.{p}"),
        row("lm_head.weight", "output.weight"),
    )


def _gpt2(settings: Settings, state: State) -> ModelConfig:
    only(settings, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    return configure(
        "gpt2",
        vocab_size=settings["vocab_size"],
        d_model=settings["n_embd"],
        heads=settings["n_head"],
        d_ff=settings.get("n_inner") or 4 * settings["n_embd"],
        decoder_layers=settings["n_layer"],
        activation=activation(settings, "activation_function"),
        positions={"max_length": settings["n_positions"]},
        norm={"epsilon": settings["layer_norm_epsilon"]},
        dropout=_dropouts(settings, "resid_pdrop", "embd_pdrop", "attn_pdrop"),
        head={"tied": settings.get("tie_word_embeddings", True)},
    )


def _mingpt(settings: Settings, state: State) -> ModelConfig:
    """minGPT's own names for the same, and its fixed choices: an untied head, GELU through tanh."""
    fixed = {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False}
    return _gpt2({**settings, **fixed, "n_positions": settings["block_size"]}, state)


def _dropouts(settings: Settings, residual: str, embedding: str, attention: str) -> dict[str, float]:
    return {"residual": settings[residual], "embedding": settings[embedding], "attention": settings[attention]}


# ---- BERT ----------------------------------------------------------------------------------------------------------

_BERT_LAYER = (
    row("attention.self.query.{p}", "self_attention.query.{p}"),
    row("attention.self.key.{p}", "self_attention.key.{p}"),
    row("attention.self.value.{p}", "self_attention.value.{p}"),
    row("attention.output.dense.{p}", "self_attention.out.{p}"),
    row("attention.output.LayerNorm.{p}", "self_attention_residual.norm.{p}"),
    row("intermediate.dense.{p}", "feed_forward.inner.{p}"),
    row("output.dense.{p}", "feed_forward.outer.{p}"),
    row("output.LayerNorm.{p}", "feed_forward_residual.norm.{p}"),
)
_BERT = (
    row("embeddings.word_embeddings.weight", "embedding.weight"),
    row("embeddings.position_embeddings.weight", "embedding.positions.weight"),
    row("embeddings.position_ids"),  # 0, 1, 2 …, not a weight
    row("embeddings.token_type_embeddings.weight", "embedding.segments"),
    row("embeddings.LayerNorm.{p}", "embedding.norm.{p}"),
    *under("encoder.layer.{n}.", "encoder.layers.{n}.", _BERT_LAYER),
    row("pooler.dense.{p}", "output.transform.{p}"),
    row("classifier.{p}", "output.classify.{p}"),
    row("cls.predictions.transform.dense.{p}", "output.transform.{p}"),
    row("cls.predictions.transform.LayerNorm.{p}", "output.norm.{p}"),
    row("cls.predictions.bias", "output.bias"),
    row("cls.predictions.decoder.weight", "output.weight"),
    row("cls.predictions.decoder.bias", "output.bias"),
)


def _bert(settings: Settings, state: State) -> ModelConfig:
    only(settings, position_embedding_type="absolute", is_decoder=False)
    head: dict[str, Any] = {"kind": "none"}
    if any(name.startswith("cls.predictions.") for name in state):
        head = {"kind": "masked", "bias": True, "tied": settings.get("tie_word_embeddings", True)}
    elif "classifier.weight" in state or any("pooler." in name for name in state):
        pooled = any("pooler." in name for name in state)
        classes = len(state["classifier.weight"]) if "classifier.weight" in state else 0
        head = {"kind": "pooled" if pooled else "tokens", "classes": classes}
    return configure(
        "bert-base",
        vocab_size=settings["vocab_size"],
        d_model=settings["hidden_size"],
        heads=settings["num_attention_heads"],
        d_ff=settings["intermediate_size"],
        encoder_layers=settings["num_hidden_layers"],
        activation=activation(settings, "hidden_act"),
        positions={"max_length": settings["max_position_embeddings"]},
        embedding={"segments": settings["type_vocab_size"]},
        norm={"epsilon": settings["layer_norm_eps"]},
        dropout=_dropouts(settings, "hidden_dropout_prob", "hidden_dropout_prob", "attention_probs_dropout_prob"),
        head=head,
    )


# ---- Llama ---------------------------------------------------------------------------------------------------------

_LLAMA_LAYER = (
    row("input_layernorm.weight", "self_attention_residual.norm.weight"),
    row("self_attn.q_proj.weight", "self_attention.query.weight"),
    row("self_attn.k_proj.weight", "self_attention.key.weight"),
    row("self_attn.v_proj.weight", "self_attention.value.weight"),
    row("self_attn.o_proj.weight", "self_attention.out.weight"),
    row("self_attn.rotary_emb.inv_freq"),  # frequencies, not weights
    row("post_attention_layernorm.weight", "feed_forward_residual.norm.weight"),
    row("mlp.gate_proj.weight", "feed_forward.gate.weight"),
    row("mlp.up_proj.weight", "feed_forward.inner.weight"),
    row("mlp.down_proj.weight", "feed_forward.outer.weight"),
)
_LLAMA = (
    row("embed_tokens.weight", "embedding.weight"),
    *under("layers.{n}.", "decoder.layers.{n}.", _LLAMA_LAYER),
    row("norm.weight", "decoder.norm.weight"),
    row("lm_head.weight", "output.weight"),
)


def _llama(settings: Settings, state: State) -> ModelConfig:
    width, heads = settings["hidden_size"], settings["num_attention_heads"]
    only(settings, hidden_act="silu", attention_bias=False, mlp_bias=False, head_dim=width // heads)
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    for spelling in ("rope_type", "type"):  # the second is the older one
        only(rope, **{spelling: "default"})
    return configure(
        "llama",
        vocab_size=settings["vocab_size"],
        d_model=width,
        heads=heads,
        kv_heads=settings.get("num_key_value_heads") or heads,
        d_ff=settings["intermediate_size"],
        decoder_layers=settings["num_hidden_layers"],
        positions={"base": rope.get("rope_theta") or settings.get("rope_theta", 10_000.0)},
        norm={"epsilon": settings["rms_norm_eps"]},
        dropout={"attention": settings.get("attention_dropout", 0.0)},
        head={"tied": settings.get("tie_word_embeddings", False)},
    )


# ---- Marian --------------------------------------------------------------------------------------------------------

_MARIAN_ATTENTION = (
    row("q_proj.{p}", "query.{p}"),
    row("k_proj.{p}", "key.{p}"),
    row("v_proj.{p}", "value.{p}"),
    row("out_proj.{p}", "out.{p}"),
)
_MARIAN_LAYER = (
    *under("self_attn.", "self_attention.", _MARIAN_ATTENTION),
    row("self_attn_layer_norm.{p}", "self_attention_residual.norm.{p}"),
    *under("encoder_attn.", "cross_attention.", _MARIAN_ATTENTION),
    row("encoder_attn_layer_norm.{p}", "cross_attention_residual.norm.{p}"),
    row("fc1.{p}", "feed_forward.inner.{p}"),
    row("fc2.{p}", "feed_forward.outer.{p}"),
    row("final_layer_norm.{p}", "feed_forward_residual.norm.{p}"),
)
_MARIAN = (
    row("shared.weight", "embedding.weight"),
    row("encoder.embed_tokens.weight", "embedding.weight"),
    row("decoder.embed_tokens.weight", "embedding.weight"),
    row("encoder.embed_positions.weight"),  # sinusoids, which we compute
    row("decoder.embed_positions.weight"),
    *under("encoder.layers.{n}.", "encoder.layers.{n}.", _MARIAN_LAYER),
    *under("decoder.layers.{n}.", "decoder.layers.{n}.", _MARIAN_LAYER),
    row("lm_head.weight", "output.weight"),
    row("final_logits_bias", "output.bias", layout=flat),
)


def _marian(settings: Settings, state: State) -> ModelConfig:
    only(settings, share_encoder_decoder_embeddings=True)
    for key in ("attention_heads", "ffn_dim"):  # one size serves both stacks
        only(settings, **{f"decoder_{key}": settings[f"encoder_{key}"]})
    return configure(
        "base",
        vocab_size=settings["vocab_size"],
        d_model=settings["d_model"],
        heads=settings["encoder_attention_heads"],
        d_ff=settings["encoder_ffn_dim"],
        encoder_layers=settings["encoder_layers"],
        decoder_layers=settings["decoder_layers"],
        activation=activation(settings, "activation_function"),
        embedding={"scaled": settings["scale_embedding"]},
        positions={"layout": "split"},
        dropout={
            **_dropouts(settings, "dropout", "dropout", "attention_dropout"),
            "hidden": settings["activation_dropout"],
        },
        head={"bias": True, "tied": settings.get("tie_word_embeddings", True)},
    )


FAMILIES = {
    "gpt2": Family(_gpt2_rows(turned), _gpt2, "transformer."),
    "mingpt": Family(_gpt2_rows(as_it_is), _mingpt, "transformer."),
    "bert": Family(_BERT, _bert, "bert."),
    "llama": Family(_LLAMA, _llama, "model."),
    "marian": Family(_MARIAN, _marian, "model."),
}
