"""Llama (Touvron et al., 2023), and what Mistral and Qwen have in common with it: all but a few lines."""

from collections.abc import Mapping
from typing import Any

from clearhead.errors import InputError
from clearhead.interop.family import Family, State
from clearhead.interop.keys import Keys
from clearhead.interop.weights import row, under
from clearhead.model import ModelConfig, configure

LAYER = (
    row("input_layernorm.weight", "self_attention_residual.norm.weight"),
    row("self_attn.q_proj.{p}", "self_attention.query.{p}"),
    row("self_attn.k_proj.{p}", "self_attention.key.{p}"),
    row("self_attn.v_proj.{p}", "self_attention.value.{p}"),
    row("self_attn.o_proj.{p}", "self_attention.out.{p}"),
    row("self_attn.q_norm.weight", "self_attention.query_norm.weight"),  # Qwen3's
    row("self_attn.k_norm.weight", "self_attention.key_norm.weight"),
    row("self_attn.rotary_emb.inv_freq"),  # which we compute
    row("post_attention_layernorm.weight", "feed_forward_residual.norm.weight"),
    row("mlp.gate_proj.{p}", "feed_forward.gate.{p}"),
    row("mlp.up_proj.{p}", "feed_forward.inner.{p}"),
    row("mlp.down_proj.{p}", "feed_forward.outer.{p}"),
)
ROWS = (
    row("model.embed_tokens.weight", "embedding.weight"),
    *under("model.layers.{n}.", "decoder.layers.{n}.", LAYER),
    row("model.norm.weight", "decoder.norm.weight"),
    row("lm_head.weight", "output.weight"),
)
HARMLESS = frozenset({"max_position_embeddings", "is_encoder_decoder"})  # RoPE has no last position


def shared(keys: Keys, usual: bool = False, **changes: Any) -> ModelConfig:
    """What all of this kind say in the same words. `usual`: heads share no keys unless it is said that they do."""
    keys.only(hidden_act="silu", rope_interleaved=False)
    width, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    own = keys.whole("head_dim", width // heads)
    return configure(
        "llama",
        vocab_size=keys.whole("vocab_size"),
        d_model=width,
        heads=heads,
        kv_heads=keys.whole("num_key_value_heads", *([heads] if usual else [])),
        head_dim=None if own * heads == width else own,
        d_ff=keys.whole("intermediate_size"),
        decoder_layers=keys.whole("num_hidden_layers"),
        positions=positions(keys),
        norm={"epsilon": keys.number("rms_norm_eps")},
        dropout={"attention": keys.number("attention_dropout", 0.0)},
        head={"tied": keys.flag("tie_word_embeddings", False)},
        **changes,
    )


def positions(keys: Keys) -> dict[str, Any]:
    """RoPE's base and how it is stretched: one table in version 5 of `transformers`, a number and a table before."""
    keys.only(partial_rotary_factor=1.0)
    base = keys.number("rope_theta", None)
    tables = [table for key in ("rope_parameters", "rope_scaling") if (table := keys.table(key)) is not None]
    found: list[dict[str, Any]] = []
    for rope in tables:
        kind = rope.choice("rope_type", KINDS, str(rope.values.get("type", "default")))
        rope.used |= {"type"}
        rope.only(partial_rotary_factor=1.0)
        own = rope.number("rope_theta", 10_000.0 if base is None else base)
        if base is not None and own != base:
            raise InputError(f"{rope.where}rope_theta = {own} and rope_theta = {base} are given: which one?")
        scaling = None if kind is None else {"kind": kind, **{one: rope.number(k) for k, one in NUMBERS[kind].items()}}
        if kind == "llama3":
            scaling = {**(scaling or {}), "context": rope.whole("original_max_position_embeddings")}
        rope.refuse_others(frozenset({"original_max_position_embeddings"} if kind is None else ()))
        found.append({"base": own, "scaling": scaling})
    if len(found) == 2 and found[0] != found[1]:
        raise InputError("rope_parameters and rope_scaling are given and differ: which one?")
    return found[0] if found else {"base": 10_000.0 if base is None else base}


KINDS = {"default": None, "linear": "linear", "llama3": "llama3"}
NUMBERS: Mapping[str, Mapping[str, str]] = {  # their names of a scaling's numbers, and ours
    "linear": {"factor": "factor"},
    "llama3": {"factor": "factor", "low_freq_factor": "low", "high_freq_factor": "high"},
}


def shared_settings(config: ModelConfig) -> dict[str, Any]:
    scaling = config.positions.scaling
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.positions.base}
    if scaling is not None:
        rope |= {"rope_type": scaling.kind, **{k: getattr(scaling, one) for k, one in NUMBERS[scaling.kind].items()}}
        rope |= {"original_max_position_embeddings": scaling.context} if scaling.kind == "llama3" else {}
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.d_head,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.decoder_layers,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm.epsilon,
        "rope_theta": config.positions.base,  # for versions before 5, which know the table by another name
        "rope_parameters": rope,
        **({"rope_scaling": rope} if scaling is not None else {}),
        "max_position_embeddings": 2048,
        "attention_dropout": config.dropout.attention,
        "tie_word_embeddings": config.head.tied,
    }


def describe(keys: Keys, state: State) -> ModelConfig:
    keys.only(sliding_window=None)
    attention, inner = keys.flag("attention_bias", False), keys.flag("mlp_bias", False)
    if attention != inner:
        raise InputError(f"attention_bias = {attention} and mlp_bias = {inner}: our models have biases in both or none")
    return shared(keys, usual=True, bias=attention)


def settings(config: ModelConfig) -> dict[str, Any]:
    return {**shared_settings(config), "attention_bias": config.bias, "mlp_bias": config.bias}


FAMILY = Family(
    "llama",
    lambda config: ROWS,
    describe,
    settings,
    lambda config: "LlamaForCausalLM",
    prefix="model.",
    harmless=HARMLESS | {"pretraining_tp", "is_llama_config"},
)
