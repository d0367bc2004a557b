"""Qwen2 (Yang et al., 2024): Llama with biases on query, key and value, and perhaps a window."""

from dataclasses import replace
from typing import Any

from clearhead.errors import InputError
from clearhead.interop.families import llama
from clearhead.interop.family import State
from clearhead.interop.keys import Keys
from clearhead.model import ModelConfig


def window(keys: Keys) -> int | None:
    """Their window may be in some layers only; ours is in all or none."""
    width, layers = keys.whole("sliding_window", None), keys.whole("num_hidden_layers")
    used, first = keys.flag("use_sliding_window", False), keys.whole("max_window_layers", 28)
    full = layers if width is None or not used else min(first, layers)
    kinds = keys.names("layer_types") or ["full_attention"] * full + ["sliding_attention"] * (layers - full)
    if len(set(kinds)) > 1 or not set(kinds) <= {"sliding_attention", "full_attention"}:
        raise InputError(f"layer_types: {', '.join(sorted(set(kinds)))}; our models have one kind in all layers")
    if kinds[:1] == ["full_attention"] or not used:
        return None
    if width is None:
        raise InputError("layer_types has 'sliding_attention', but the key 'sliding_window' is missing")
    return int(width)


def window_settings(config: ModelConfig) -> dict[str, Any]:
    return {
        "use_sliding_window": config.window is not None,
        "sliding_window": config.window,
        "max_window_layers": 0 if config.window is not None else config.decoder_layers,
    }


def describe(keys: Keys, state: State) -> ModelConfig:
    return llama.shared(keys, window=window(keys), qkv_bias=True)


def settings(config: ModelConfig) -> dict[str, Any]:
    return {**llama.shared_settings(config), **window_settings(config)}


FAMILY = replace(
    llama.FAMILY,
    model_type="qwen2",
    describe=describe,
    settings=settings,
    architecture=lambda config: "Qwen2ForCausalLM",
    harmless=llama.HARMLESS,
)
