"""The decoder (section 3.1): a stack of layers in which no token sees a later one.

In an encoder-decoder its layers also look into the memory, the encoder's output; a decoder-only model is the same
stack without that. While decoding, a cache keeps what the layers made of earlier tokens.
"""

from torch import Tensor, nn

from clearhead.model.attention import Attend
from clearhead.model.attention_inputs import AttentionInputs, AttentionInputsBuilder
from clearhead.model.cache import UNCACHED, KVCache
from clearhead.model.config import ModelConfig
from clearhead.model.layer import TransformerLayer
from clearhead.model.norm import build_norm


class Decoder(nn.Module):
    """N layers, and the final norm where there is one."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        crossing = config.kind == "encoder-decoder"
        self.attention_inputs = AttentionInputsBuilder(config, causal=True)
        self.layers = nn.ModuleList(TransformerLayer(config, attend, crossing) for _ in range(config.decoder_layers))
        self.norm = build_norm(config) if config.norm.final else None

    def forward(
        self,
        x: Tensor,  # (B, S, D)
        inputs: AttentionInputs,
        memory: Tensor | None = None,  # (B, T, D)
        memory_inputs: AttentionInputs | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:  # (B, S, D)
        for number, layer in enumerate(self.layers):
            x = layer(x, inputs, memory, memory_inputs, UNCACHED if cache is None else cache.layers[number])
        return x if self.norm is None else self.norm(x)
