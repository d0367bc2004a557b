"""GPT-2 (Radford et al., 2019), and minGPT, which stores its matrices the usual way."""

from dataclasses import replace
from typing import Any

from clearhead.interop.families.activations import ACTIVATIONS, NAMES
from clearhead.interop.family import Family, State
from clearhead.interop.keys import Keys
from clearhead.interop.weights import AS_IT_IS, TURNED, Layout, Row, row, under
from clearhead.model import ModelConfig, configure


def table(layout: Layout) -> tuple[Row, ...]:
    attention, feed_forward = "self_attention.", "feed_forward."
    layer = (
        row("ln_1.{p}", "self_attention_residual.norm.{p}"),
        row("attn.c_attn.{p}", *(f"{attention}{part}.{{p}}" for part in ("query", "key", "value")), layout=layout),
        row("attn.c_proj.{p}", f"{attention}out.{{p}}", layout=layout),
        row("attn.bias"),  # their causal mask, not a weight
        row("attn.masked_bias"),
        row("ln_2.{p}", "feed_forward_residual.norm.{p}"),
        row("mlp.c_fc.{p}", f"{feed_forward}inner.{{p}}", layout=layout),
        row("mlp.c_proj.{p}", f"{feed_forward}outer.{{p}}", layout=layout),
    )
    return (
        row("transformer.wte.weight", "embedding.weight"),
        row("transformer.wpe.weight", "embedding.positions.weight"),
        *under("transformer.h.{n}.", "decoder.layers.{n}.", layer),
        row("transformer.ln_f.{p}", "decoder.norm.{p}"),
        row("lm_head.weight", "output.weight"),
    )


def describe(keys: Keys, state: State) -> ModelConfig:
    keys.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    width = keys.whole("n_embd")
    return configure(
        "gpt2",
        vocab_size=keys.whole("vocab_size"),
        d_model=width,
        heads=keys.whole("n_head"),
        d_ff=keys.whole("n_inner", 4 * width),
        decoder_layers=keys.whole("n_layer"),
        activation=keys.choice("activation_function", ACTIVATIONS),
        positions={"max_length": keys.whole("n_positions")},
        norm={"epsilon": keys.number("layer_norm_epsilon")},
        dropout={
            "residual": keys.number("resid_pdrop"),
            "embedding": keys.number("embd_pdrop"),
            "attention": keys.number("attn_pdrop"),
        },
        head={"tied": keys.flag("tie_word_embeddings", True)},
    )


def settings(config: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_head": config.heads,
        "n_inner": config.d_ff,
        "n_layer": config.decoder_layers,
        "n_positions": config.positions.max_length or 1024,
        "activation_function": NAMES.get(config.activation, "gelu_new"),
        "layer_norm_epsilon": config.norm.epsilon,
        "resid_pdrop": config.dropout.residual,
        "embd_pdrop": config.dropout.embedding,
        "attn_pdrop": config.dropout.attention,
        "tie_word_embeddings": config.head.tied,
    }


FAMILY = Family(
    "gpt2",
    lambda config: table(TURNED),
    describe,
    settings,
    lambda config: "GPT2LMHeadModel",
    prefix="transformer.",
    harmless=frozenset(
        # a head over classes that these models do not have, and where a sum is rounded; n_ctx repeats n_positions
        {"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"}
        | {"reorder_and_upcast_attn", "n_ctx", "is_encoder_decoder"}
    ),
)


def describe_mingpt(keys: Keys, state: State) -> ModelConfig:
    """minGPT's own names for the same, and its fixed choices: an untied head, GELU through tanh."""
    fixed = {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False}
    inner = Keys({**keys.values, **fixed, "n_positions": keys.whole("block_size")})
    config = describe(inner, state)
    keys.used |= inner.used
    return config


def mingpt_settings(config: ModelConfig) -> dict[str, Any]:
    theirs = settings(config)
    kept = ("vocab_size", "n_embd", "n_head", "n_layer", "resid_pdrop", "embd_pdrop", "attn_pdrop")
    return {**{key: theirs[key] for key in kept}, "block_size": theirs["n_positions"]}


MINGPT = replace(
    FAMILY,
    model_type="mingpt",
    rows=lambda config: table(AS_IT_IS),
    describe=describe_mingpt,
    settings=mingpt_settings,
    architecture=lambda config: "GPT",
)
