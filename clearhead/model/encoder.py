"""The encoder (section 3.1): layers of self-attention and feed-forward, every token seeing every token."""

from torch import Tensor, nn

from clearhead.model.attention import Attend, MultiHeadAttention
from clearhead.model.config import ModelConfig
from clearhead.model.feedforward import FeedForward
from clearhead.model.norm import build_norm
from clearhead.model.residual import Residual
from clearhead.model.sight import Lookout, Places, Sight


class EncoderLayer(nn.Module):
    """Look at each other, then think alone."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, attend)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, sight: Sight) -> Tensor:  # (B, S, D) -> (B, S, D)
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, sight))
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    """N layers, and the final norm where there is one."""

    def __init__(self, config: ModelConfig, attend: Attend | None = None) -> None:
        super().__init__()
        self.lookout = Lookout(config, causal=False)
        self.layers = nn.ModuleList(EncoderLayer(config, attend) for _ in range(config.encoder_layers))
        self.norm = build_norm(config) if config.norm.final else None

    def forward(self, x: Tensor, at: Places) -> Tensor:  # (B, S, D) -> (B, S, D)
        sight = self.lookout(at, x)
        for layer in self.layers:
            x = layer(x, sight)
        return x if self.norm is None else self.norm(x)
