"""Marian (Junczys-Dowmunt et al., 2018): the encoder-decoder of the paper, as translation models are published in it.

Source and target may have a vocabulary each. Sines and cosines are split, the norm comes after each sub-layer.
"""

from typing import Any

from clearhead.errors import InputError
from clearhead.interop.families.activations import ACTIVATIONS, NAMES
from clearhead.interop.family import Family, State
from clearhead.interop.keys import Keys
from clearhead.interop.weights import FLAT, Row, row, under
from clearhead.model import ModelConfig, configure

ATTENTION = (
    row("q_proj.{p}", "query.{p}"),
    row("k_proj.{p}", "key.{p}"),
    row("v_proj.{p}", "value.{p}"),
    row("out_proj.{p}", "out.{p}"),
)
LAYER = (
    *under("self_attn.", "self_attention.", ATTENTION),
    row("self_attn_layer_norm.{p}", "self_attention_residual.norm.{p}"),
    *under("encoder_attn.", "cross_attention.", ATTENTION),
    row("encoder_attn_layer_norm.{p}", "cross_attention_residual.norm.{p}"),
    row("fc1.{p}", "feed_forward.inner.{p}"),
    row("fc2.{p}", "feed_forward.outer.{p}"),
    row("final_layer_norm.{p}", "feed_forward_residual.norm.{p}"),
)
STACKS = (
    row("model.encoder.embed_positions.weight"),  # sinusoids, which we compute
    row("model.decoder.embed_positions.weight"),
    *under("model.encoder.layers.{n}.", "encoder.layers.{n}.", LAYER),
    *under("model.decoder.layers.{n}.", "decoder.layers.{n}.", LAYER),
    row("lm_head.weight", "output.weight"),
    row("final_logits_bias", "output.bias", layout=FLAT),
)
ONE_VOCABULARY = (
    row("model.shared.weight", "embedding.weight"),
    row("model.encoder.embed_tokens.weight", "embedding.weight"),
    row("model.decoder.embed_tokens.weight", "embedding.weight"),
)
TWO_VOCABULARIES = (
    row("model.encoder.embed_tokens.weight", "source_embedding.weight"),
    row("model.decoder.embed_tokens.weight", "embedding.weight"),
)


def rows(config: ModelConfig) -> tuple[Row, ...]:
    return (*(ONE_VOCABULARY if config.source_vocab_size is None else TWO_VOCABULARIES), *STACKS)


def describe(keys: Keys, state: State) -> ModelConfig:
    for key in ("attention_heads", "ffn_dim"):  # one size serves both stacks
        keys.only(**{f"decoder_{key}": keys.whole(f"encoder_{key}")})
    # options of Marian itself that older files carry along, where only these values are what the model computes
    keys.only(normalize_before=False, normalize_embedding=False, add_final_layer_norm=False, add_bias_logits=False)
    keys.only(static_position_embeddings=True)
    source = keys.whole("vocab_size")
    target = keys.whole("decoder_vocab_size", source)
    together = keys.flag("share_encoder_decoder_embeddings", True)
    if together and target != source:
        raise InputError(f"one embedding for both sides, but vocab_size = {source} and decoder_vocab_size = {target}")
    dropout = keys.number("dropout")
    return configure(
        "base",
        vocab_size=target,
        source_vocab_size=None if together else source,
        d_model=keys.whole("d_model"),
        heads=keys.whole("encoder_attention_heads"),
        d_ff=keys.whole("encoder_ffn_dim"),
        encoder_layers=keys.whole("encoder_layers"),
        decoder_layers=keys.whole("decoder_layers"),
        activation=keys.choice("activation_function", ACTIVATIONS),
        embedding={"scaled": keys.flag("scale_embedding", False)},
        positions={"layout": "split"},
        dropout={
            "residual": dropout,
            "embedding": dropout,
            "attention": keys.number("attention_dropout", 0.0),
            "hidden": keys.number("activation_dropout", 0.0),
        },
        head={"bias": True, "tied": keys.flag("tie_word_embeddings", True)},
    )


def settings(config: ModelConfig) -> dict[str, Any]:
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.source_vocab_size or config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": config.source_vocab_size is None,
        "d_model": config.d_model,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "activation_function": NAMES.get(config.activation, "relu"),
        "scale_embedding": config.embedding.scaled,
        "max_position_embeddings": 1024,
        "dropout": config.dropout.residual,
        "attention_dropout": config.dropout.attention,
        "activation_dropout": config.dropout.hidden,
        "tie_word_embeddings": config.head.tied,
    }


FAMILY = Family(
    "marian",
    rows,
    describe,
    settings,
    lambda config: "MarianMTModel",
    prefix="model.",
    # sinusoids have no last position; layers are dropped in training only
    harmless=frozenset({"max_position_embeddings", "is_encoder_decoder", "init_std", "num_hidden_layers"})
    | {"encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout"}
    | {"extra_pos_embeddings", "force_bos_token_to_be_generated"},  # of BART, from whose converter the first came
)
