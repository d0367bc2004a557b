"""Residual sub-layers: x + sublayer(x), with a norm before or after (sections 3.1 and 5.4).

Post-norm, the paper's: LayerNorm(x + Sublayer(x)). Every layer's norm sits on the residual stream, so gradients pass
through all of them, and training needs its warm-up. Pre-norm: x + Sublayer(LayerNorm(x)). The stream is a plain sum
from input to output, and one last norm brings its length back; this is what nearly every later model does.
"""

from torch import Tensor, nn

from clearhead.model.config import ModelConfig
from clearhead.model.dropout import dropout
from clearhead.model.norm import build_norm
from clearhead.model.trace import tap


class Residual(nn.Module):
    """What surrounds a sub-layer; owns the norm. Layers say `x = residual(x, sublayer(residual.before(x)))`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm: nn.Module = build_norm(config)
        self.pre = config.norm.placement == "pre"
        self.dropout = config.dropout.residual
        self.fused = config.kernels == "fused"

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return self.norm(x) if self.pre else x

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x, and what the sub-layer made of it: (B, S, D) each, and the result."""
        x = tap("residual", x + dropout(y, self.dropout, self.training, self.fused), "B S D")
        return x if self.pre else self.norm(x)
