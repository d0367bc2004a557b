"""Normalisation: bring each token's vector to a standard size, whatever the layers before it did.

LayerNorm (Ba et al., 2016, the paper's choice) subtracts the mean and divides by the standard deviation over the
D features of one token. RMSNorm (Zhang and Sennrich, 2019) leaves out the mean: direction is kept, only length is
set. Both then scale each feature by a learned weight. Statistics are taken in at least float32: in 16 bits the sum
of squares of a wide vector overflows or drowns.
"""

import torch
from torch import Tensor, nn

from clearhead.model.config import ModelConfig
from clearhead.model.trace import tap


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """(x − mean) / √(variance + ε) · weight + bias, over the last dimension."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)  # over D, not D − 1: the paper's biased estimate
    normal = (centred / torch.sqrt(variance + epsilon)).to(x.dtype) * weight
    return normal if bias is None else normal + bias


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / √(mean square + ε) · weight, over the last dimension."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean_square = (wide * wide).mean(-1, keepdim=True)
    return (wide / torch.sqrt(mean_square + epsilon)).to(x.dtype) * weight


def letters(x: Tensor) -> str:
    return "B S D" if x.dim() == 3 else "B H S d"  # of a token, or of what one head makes of it


class LayerNorm(nn.Module):
    """Layer normalisation over the model width, or another."""

    def __init__(self, config: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width or config.d_model))
        self.bias = nn.Parameter(torch.zeros(width or config.d_model)) if config.bias else None
        self.epsilon = config.norm.epsilon
        self.normalise = layer_norm if config.kernels == "plain" else fused_layer_norm

    def forward(self, x: Tensor) -> Tensor:  # (B, S, D) -> (B, S, D)
        return tap("norm", self.normalise(x, self.weight, self.bias, self.epsilon), letters(x))


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the model width, or another."""

    def __init__(self, config: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width or config.d_model))
        self.epsilon = config.norm.epsilon
        self.normalise = rms_norm if config.kernels == "plain" else fused_rms_norm

    def forward(self, x: Tensor) -> Tensor:  # (B, S, D) -> (B, S, D)
        return tap("norm", self.normalise(x, self.weight, self.epsilon), letters(x))


def build_norm(config: ModelConfig, width: int | None = None) -> LayerNorm | RMSNorm:
    """The norm that the configuration asks for."""
    return LayerNorm(config, width) if config.norm.kind == "layer" else RMSNorm(config, width)


# ---- the fused twins -----------------------------------------------------------------------------------------------


def fused_layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    return torch.layer_norm(x, weight.shape, weight, bias, epsilon)


def fused_rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return torch.rms_norm(x, weight.shape, weight, epsilon)
