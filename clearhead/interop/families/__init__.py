"""The families we can read and write, one small file each; `FAMILIES[model_type]` finds them."""

from collections.abc import Mapping
from typing import Any

from clearhead.errors import InputError
from clearhead.interop import family
from clearhead.interop.families import bert, gpt2, llama, marian, mistral, pegasus, qwen2, qwen3
from clearhead.interop.family import Family, State
from clearhead.model import Transformer

FAMILIES: dict[str, Family] = {
    one.model_type: one
    for one in (
        gpt2.FAMILY,
        gpt2.MINGPT,
        bert.FAMILY,
        llama.FAMILY,
        mistral.FAMILY,
        qwen2.FAMILY,
        qwen3.FAMILY,
        marian.FAMILY,
        pegasus.FAMILY,
    )
}


def of_type(model_type: object) -> Family:
    """The family that a `config.json` names."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise InputError(f"model type {model_type!r:.80} is not one of {', '.join(FAMILIES)}")
    return FAMILIES[model_type]


def read(model_type: str, settings: Mapping[str, Any], state: State) -> Transformer:
    """Our model with their weights."""
    return family.read(of_type(model_type), settings, state)
