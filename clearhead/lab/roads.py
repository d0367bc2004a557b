"""A replacement for `Residual`: the sub-layer without the road around it."""

from collections.abc import Callable

from torch import Tensor, nn


class NoResidual(nn.Module):
    """A sub-layer without the road around it; the norm stays, where there is one."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        output: Tensor = self.norm(sublayer(x))
        return output
