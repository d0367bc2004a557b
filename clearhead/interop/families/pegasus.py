"""Pegasus (Zhang et al., 2020): the encoder-decoder of the paper, but with norms before the sub-layers and at the end.

Otherwise it is Marian, in its names and in its settings, but for two vocabularies.
"""

from dataclasses import replace
from typing import Any

from clearhead.interop.families import marian
from clearhead.interop.family import State
from clearhead.interop.keys import Keys
from clearhead.interop.weights import row
from clearhead.model import ModelConfig

ROWS = (
    *marian.ONE_VOCABULARY,
    *marian.STACKS,
    row("model.encoder.layer_norm.{p}", "encoder.norm.{p}"),
    row("model.decoder.layer_norm.{p}", "decoder.norm.{p}"),
)
PASSED_OVER = "extra_pos_embeddings"  # 1 in the published files, and nothing to `transformers`
TWO_SIDES = ("decoder_vocab_size", "share_encoder_decoder_embeddings")


def describe(keys: Keys, state: State) -> ModelConfig:
    # what the published files say of the code that came before, where only these values are what the model computes
    keys.only(normalize_before=True, add_final_layer_norm=True)
    inner = Keys({key: value for key, value in keys.values.items() if key not in {*keys.used, *TWO_SIDES, PASSED_OVER}})
    config = marian.describe(inner, state)
    keys.used |= inner.used
    return replace(config, norm=replace(config.norm, placement="pre", final=True))


def settings(config: ModelConfig) -> dict[str, Any]:
    return {key: value for key, value in marian.settings(config).items() if key not in TWO_SIDES}


FAMILY = replace(
    marian.FAMILY,
    model_type="pegasus",
    rows=lambda config: ROWS,
    describe=describe,
    settings=settings,
    architecture=lambda config: "PegasusForConditionalGeneration",
    harmless=marian.FAMILY.harmless | {PASSED_OVER},
)
