"""The position-wise feed-forward network (section 3.3): linear, nonlinear, linear, for each token alone.

Attention moves information between tokens; this is where each token's vector is worked on, and where most of the
parameters are (`clearhead shapes` counts them). The paper makes the inner layer four times as wide as the model; any
width will do. SwiGLU (Shazeer, 2020) multiplies two inner layers, one of them through SiLU, and has three matrices.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.model.config import ModelConfig
from clearhead.model.dropout import dropout
from clearhead.model.trace import tap


def relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def gelu(x: Tensor) -> Tensor:
    """x · Φ(x), Φ the normal distribution function (Hendrycks and Gimpel, 2016); BERT's form."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU with Φ approximated through tanh; GPT-2's form, up to 5e-4 away from the exact one."""
    return x * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: Tensor) -> Tensor:
    """x · σ(x), also called swish."""
    return x * torch.sigmoid(x)


PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "swiglu": silu,  # the gate's half of it
}
FUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """max(0, x W₁ + b₁) W₂ + b₂, with a choice of what stands in for max(0, ·)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.gate = None
        if config.activation == "swiglu":
            self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.outer = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.fused = config.kernels == "fused"
        self.activate = (FUSED if self.fused else PLAIN)[config.activation]
        self.dropout = config.dropout.hidden

    def forward(self, x: Tensor) -> Tensor:  # (B, S, D) -> (B, S, D)
        if self.gate is None:
            hidden = tap("hidden", self.activate(self.inner(x)), "B S F")
        else:
            hidden = tap("hidden", self.activate(self.gate(x)) * self.inner(x), "B S F")
        return tap("output", self.outer(dropout(hidden, self.dropout, self.training, self.fused)), "B S D")
