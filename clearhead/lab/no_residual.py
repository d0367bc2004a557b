"""A replacement for `Residual`: the sub-layer without the residual connection around it."""

from torch import Tensor, nn


class NoResidual(nn.Module):
    """What the sub-layer made, and nothing of what it read; the norm stays, where there is one."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def before(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        output: Tensor = self.norm(y)
        return output
