"""One layer of a stack (section 3.1): tokens look at each other, then each is worked on alone.

The decoder of an encoder-decoder looks over at the source in between. Everything else is the same in both stacks, and
what differs (who may look at whom) comes in as `inputs`.
"""

from torch import Tensor, nn

from clearhead.model.attention import Attend, MultiHeadAttention
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.cache import UNCACHED, LayerCache
from clearhead.model.config import ModelConfig
from clearhead.model.feedforward import FeedForward
from clearhead.model.residual import Residual


class TransformerLayer(nn.Module):
    """Self-attention, cross-attention if there is a source to look at, feed-forward."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None, crossing: bool = False) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, attend)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config, attend) if crossing else None
        if crossing:
            self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,  # (B, S, D)
        inputs: AttentionInputs,
        memory: Tensor | None = None,  # (B, T, D), the encoder's output
        memory_inputs: AttentionInputs | None = None,
        cache: LayerCache = UNCACHED,
    ) -> Tensor:  # (B, S, D)
        residual = self.self_attention_residual
        x = residual(x, self.self_attention(residual.before(x), inputs, None, cache.self_attention))
        if self.cross_attention is not None:
            residual = self.cross_attention_residual
            x = residual(x, self.cross_attention(residual.before(x), memory_inputs, memory, cache.cross_attention))
        residual = self.feed_forward_residual
        return residual(x, self.feed_forward(residual.before(x)))
