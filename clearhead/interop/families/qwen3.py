"""Qwen3 (Yang et al., 2025): Llama whose queries and keys are normalised, head by head, before they meet."""

from dataclasses import replace
from typing import Any

from clearhead.interop.families import llama, qwen2
from clearhead.interop.family import State
from clearhead.interop.keys import Keys
from clearhead.model import ModelConfig


def describe(keys: Keys, state: State) -> ModelConfig:
    keys.only(attention_bias=False)
    keys.whole("head_dim")  # without a default here, because theirs is 128 at any width
    return llama.shared(keys, window=qwen2.window(keys), qk_norm=True)


def settings(config: ModelConfig) -> dict[str, Any]:
    return {**llama.shared_settings(config), **qwen2.window_settings(config), "attention_bias": False}


FAMILY = replace(
    llama.FAMILY,
    model_type="qwen3",
    describe=describe,
    settings=settings,
    architecture=lambda config: "Qwen3ForCausalLM",
    harmless=llama.HARMLESS,
)
