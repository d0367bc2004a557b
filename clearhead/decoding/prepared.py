"""Weights prepared for decoding: each matrix in the order in which it is read, and maps of one input merged.

What is prepared is a copy: a model that is trained on must be prepared again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.model.attention import MultiHeadAttention
from clearhead.model.decoder import DecoderLayer
from clearhead.model.feedforward import FeedForward
from clearhead.model.norm import LayerNorm
from clearhead.model.residual import Residual

Map = Callable[[Tensor], Tensor]
PACKABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
LARGE = 1 << 17  # numbers in a matrix: from here on oneDNN's layout pays for the cost of calling it


class Matrix:
    """x Wᵀ + b, with W stored in the order that is fastest for the number of rows at hand."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:  # (out, in), (out,)
        self.weight, self.bias = weight, bias
        self.packable = PACKABLE and weight.dtype == torch.float32 and weight.numel() >= LARGE
        self.turned: Tensor | None = None
        self.packed: Tensor | None = None

    def __call__(self, x: Tensor, relu: bool = False) -> Tensor:  # (R, in) -> (R, out)
        if self.packable and x.size(0) > 1:
            kind = "relu" if relu else "none"
            return torch.ops.mkldnn._linear_pointwise(x, self._packed(), self.bias, kind, [], "")
        if self.turned is None:
            self.turned = self.weight.t().contiguous()
        y = torch.mm(x, self.turned) if self.bias is None else torch.addmm(self.bias, x, self.turned)
        return y.relu_() if relu else y

    def plus(self, x: Tensor, y: Tensor) -> Tensor:
        """y + x Wᵀ + b: a sub-layer's last map and the residual in one."""
        if self.packable and x.size(0) > 1:
            return torch.ops.mkldnn._linear_pointwise.binary(x, y, self._packed(), self.bias, "add")
        return self(x).add_(y)

    def _packed(self) -> Tensor:
        if self.packed is None:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight)
        return self.packed


def merged(*maps: tuple[nn.Linear, float]) -> Matrix:
    """Several linear maps of one input as one matrix, each with a factor."""
    weight = torch.cat([one.weight * factor for one, factor in maps])
    biases = [one.bias * factor for one, factor in maps if one.bias is not None]
    return Matrix(weight, torch.cat(biases) if biases else None)


def norm_of(module: nn.Module) -> Map:
    """A norm as a plain function."""
    weight, epsilon = module.weight, module.epsilon
    assert isinstance(weight, Tensor)
    shape = weight.shape
    if isinstance(module, LayerNorm):
        bias = module.bias
        return lambda x: F.layer_norm(x, shape, weight, bias, epsilon)  # type: ignore[arg-type]
    return lambda x: F.rms_norm(x, shape, weight, epsilon)  # type: ignore[arg-type]


@dataclass
class Layer:
    """One decoder layer, prepared."""

    self_in: Matrix  # query (times 1/√d), key and value
    self_out: Matrix
    self_norm: Map
    inner: Matrix  # the gate's half first, where there is one
    outer: Matrix
    feed_forward_norm: Map
    cross_query: Matrix | None = None
    cross_memory: Matrix | None = None  # key and value
    cross_out: Matrix | None = None
    cross_norm: Map | None = None

    @classmethod
    def of(cls, layer: DecoderLayer, scale: float) -> "Layer":
        own, forward = layer.self_attention, layer.feed_forward
        assert isinstance(forward, FeedForward)
        gate = [] if forward.gate is None else [(forward.gate, 1.0)]
        made = cls(
            merged((own.query, scale), (own.key, 1.0), (own.value, 1.0)),
            merged((own.out, 1.0)),
            norm_of(layer.self_attention_residual.norm),
            merged(*gate, (forward.inner, 1.0)),
            merged((forward.outer, 1.0)),
            norm_of(layer.feed_forward_residual.norm),
        )
        cross = layer.cross_attention
        if isinstance(cross, MultiHeadAttention):
            assert isinstance(layer.cross_attention_residual, Residual)
            made.cross_query = merged((cross.query, scale))
            made.cross_memory = merged((cross.key, 1.0), (cross.value, 1.0))
            made.cross_out = merged((cross.out, 1.0))
            made.cross_norm = norm_of(layer.cross_attention_residual.norm)
        return made
