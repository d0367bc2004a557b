"""The Transformer, one concept a file. Start with the pass (`DecoderOnly.hidden` in transformer, `forward` in layer),
then read in this order, in which nothing is used before it was read; config is to look things up in:

config · trace · dropout · norm · masks · positions · cache · attention_inputs · embedding · attention · feedforward ·
residual · layer · encoder · decoder · heads · initialise · transformer · presets
"""

from clearhead.model.attention import attention, fused_attention
from clearhead.model.cache import KVCache
from clearhead.model.config import ModelConfig
from clearhead.model.presets import PRESETS, configure
from clearhead.model.trace import Trace, tap, trace
from clearhead.model.transformer import (
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    Transformer,
    build,
    count_parameters,
)

__all__ = [
    "PRESETS",
    "DecoderOnly",
    "EncoderDecoder",
    "EncoderOnly",
    "KVCache",
    "ModelConfig",
    "Trace",
    "Transformer",
    "attention",
    "build",
    "configure",
    "count_parameters",
    "fused_attention",
    "tap",
    "trace",
]
