"""The decoder (section 3.1): masked self-attention, cross-attention into the encoder's output, feed-forward.

A decoder-only model is the same stack without the cross-attention.
"""

from torch import Tensor, nn

from clearhead.model.attention import Attend, MultiHeadAttention
from clearhead.model.cache import KVCache, LayerCache
from clearhead.model.config import ModelConfig
from clearhead.model.feedforward import FeedForward
from clearhead.model.norm import build_norm
from clearhead.model.residual import Residual
from clearhead.model.sight import Lookout, Places, Sight


class DecoderLayer(nn.Module):
    """Look back at what was written, look over at the source, then think alone."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, attend)
        self.self_attention_residual = Residual(config)
        self.cross_attention = None
        if config.kind == "encoder-decoder":
            self.cross_attention = MultiHeadAttention(config, attend)
            self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,  # (B, S, D)
        sight: Sight,
        memory: Tensor | None = None,  # (B, T, D), the encoder's output
        memory_sight: Sight | None = None,
        cache: LayerCache | None = None,
        memory_cache: LayerCache | None = None,
    ) -> Tensor:  # (B, S, D)
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, sight, cache=cache))
        cross = self.cross_attention
        if cross is not None:
            assert memory is not None
            seen = memory_sight or Sight()
            x = self.cross_attention_residual(x, lambda y: cross(y, seen, memory, memory_cache))
        return self.feed_forward_residual(x, self.feed_forward)


class Decoder(nn.Module):
    """N layers, and the final norm where there is one."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        self.lookout = Lookout(config, causal=True)
        self.layers = nn.ModuleList(DecoderLayer(config, attend) for _ in range(config.decoder_layers))
        self.norm = build_norm(config) if config.norm.final else None

    def forward(
        self,
        x: Tensor,  # (B, S, D)
        at: Places,
        memory: Tensor | None = None,
        memory_sight: Sight | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:  # (B, S, D)
        sight = self.lookout(at, x)
        for number, layer in enumerate(self.layers):
            own = cache.self_attention[number] if cache else None
            cross = cache.cross_attention[number] if cache and memory is not None else None
            x = layer(x, sight, memory, memory_sight, own, cross)
        return x if self.norm is None else self.norm(x)
