"""The Transformer, one concept a file. Read in this order:

config · embedding · positions · masks · attention · feedforward · norm · residual · encoder · decoder · transformer,
then sight (what the queries of a stack may see), cache, dropout, initialise and trace.
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
