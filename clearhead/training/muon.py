"""Muon (Jordan et al., 2024): momentum whose step is made orthogonal, matrix by matrix.

A gradient's matrix has few large singular values and many small ones, so a plain step learns a few directions fast and
the rest hardly at all. Muon sets all singular values near one: U S Vᵀ becomes about U Vᵀ. An SVD would be slow; five
rounds of an odd polynomial, X ← aX + bXXᵀX + c(XXᵀ)²X, drive every singular value in (0, 1] towards one, by matrix
products alone. It works where torch.optim.Muon would crawl: products are taken in bfloat16 only where the processor has
it, matrices of one shape go through the polynomial together, because alone they are too small to keep it busy, and
processes share the work.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.training.distributed import divided, pick_precision, shard_like, whole

MOMENTUM = 0.95
ROUNDS = 5
POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # the authors': steep at zero, so that small singular values grow fast


def orthogonal(matrices: Tensor) -> Tensor:
    """(N, rows, columns) -> the same, with the singular values of each matrix between about 0.7 and 1.2, but for
    those a thousand times smaller than the largest, which five rounds do not lift so far."""
    native = pick_precision("auto", matrices.device) == "bfloat16"
    x = matrices.to(torch.bfloat16 if native else torch.float32)
    tall = x.size(-2) > x.size(-1)
    if tall:  # XXᵀ is then the smaller of the two possible squares
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)  # no singular value exceeds the norm
    a, b, c = POLYNOMIAL
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """For the matrices of the layers. A step has the root mean square that AdamW's usually has, so that both optimizers
    of a model can share one learning rate (Liu et al., 2025)."""

    def __init__(self, matrices: Iterable[nn.Parameter] | Iterable[dict[str, Any]], weight_decay: float = 0.0) -> None:
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean = whole(self.averaged(parameter, parameter.grad))
                    by_shape.setdefault(parameter.shape, []).append((parameter, mean))
            for shape, pairs in by_shape.items():
                steps = divided(orthogonal, torch.stack([mean for _, mean in pairs]))
                size = group["lr"] * 0.2 * math.sqrt(max(shape))
                for (parameter, _), step in zip(pairs, steps, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.sub_(shard_like(step, parameter), alpha=size)

    def averaged(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor:
        """Nesterov's momentum: the running mean of the gradients, with the newest one counted once more."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        return torch.lerp(gradient, state["momentum"], MOMENTUM)
