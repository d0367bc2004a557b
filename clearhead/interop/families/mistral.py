"""Mistral 7B (Jiang et al., 2023): Llama whose attention reaches back through a window."""

from dataclasses import replace
from typing import Any

from clearhead.interop.families import llama
from clearhead.interop.family import State
from clearhead.interop.keys import Keys
from clearhead.model import ModelConfig


def describe(keys: Keys, state: State) -> ModelConfig:
    keys.only(attention_bias=False, mlp_bias=False)
    usual = None if "sliding_window" in keys.values else 4096  # null is no window, silence the one of the paper
    return llama.shared(keys, window=keys.whole("sliding_window", usual))


def settings(config: ModelConfig) -> dict[str, Any]:
    return {**llama.shared_settings(config), "sliding_window": config.window}


FAMILY = replace(
    llama.FAMILY,
    model_type="mistral",
    describe=describe,
    settings=settings,
    architecture=lambda config: "MistralForCausalLM",
    harmless=llama.HARMLESS,
)
