"""Bugs to plant in this package's encoder-decoder, each of a kind that does not crash.

A bug is another attention, a change made to the fresh model, another configuration, or labels that are not shifted; the
model itself has no switch for any of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearhead.lab.roads import NoResidual
from clearhead.model.attention import MultiHeadAttention, attention, softmax_or_zeros
from clearhead.model.masks import causal_mask, combine

Mask = Tensor | None


@dataclass(frozen=True)
class Bug:
    """What is wrong, as another attention, a change to the model, another configuration or other labels."""

    what: str
    kind: Literal["mask", "other"]
    attend: Callable[..., Any] | None = None
    change: Callable[[Any], object] | None = None
    config: dict[str, Any] | None = None
    unshifted: bool = False


def masked(q: Tensor, k: Tensor, may_attend: Tensor | None, causal: bool, diagonal: int = 0) -> Tensor | None:
    """The right mask, or with another diagonal a wrong one."""
    if not causal:
        return may_attend
    offset = k.size(-2) - q.size(-2)
    return combine(may_attend, torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril(offset + diagonal))


def no_causal(
    q: Tensor, k: Tensor, v: Tensor, may: Mask = None, bias: Any = None, causal: bool = False, _: float = 0
) -> Any:
    return attention(q, k, v, may)


def after_softmax(
    q: Tensor, k: Tensor, v: Tensor, may: Mask = None, bias: Any = None, causal: bool = False, _: float = 0
) -> Any:
    weights = attention(q, k, v, may)[1]
    if causal:
        weights = weights * causal_mask(q.size(-2), k.size(-2))
    return weights @ v, weights


def triangle(
    q: Tensor, k: Tensor, v: Tensor, may: Mask = None, bias: Any = None, causal: bool = False, _: float = 0
) -> Any:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if causal:
        scores = scores * causal_mask(q.size(-2), k.size(-2))
    if may is not None:
        scores = scores.masked_fill(~may, -math.inf)
    weights = softmax_or_zeros(scores)
    return weights @ v, weights


def shifted_mask(diagonal: int) -> Callable[..., Any]:
    def attend(
        q: Tensor, k: Tensor, v: Tensor, may: Mask = None, bias: Any = None, causal: bool = False, _: float = 0
    ) -> Any:
        return attention(q, k, v, masked(q, k, may, causal, diagonal))

    return attend


def no_padding(
    q: Tensor, k: Tensor, v: Tensor, may: Mask = None, bias: Any = None, causal: bool = False, _: float = 0
) -> Any:
    return attention(q, k, v, None, None, causal)


def over_queries(
    q: Tensor, k: Tensor, v: Tensor, may: Mask = None, bias: Any = None, causal: bool = False, _: float = 0
) -> Any:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    mask = masked(q, k, may, causal)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax_or_zeros(scores.transpose(-1, -2)).transpose(-1, -2)
    return weights @ v, weights


def scaled_by(power: float) -> Callable[..., Any]:
    def attend(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
        return attention(q * q.size(-1) ** power, k, v, *rest)

    return attend


def keys_as_values(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    return attention(q, k, k, *rest)


def softmax_twice(
    q: Tensor, k: Tensor, v: Tensor, may: Mask = None, bias: Any = None, causal: bool = False, _: float = 0
) -> Any:
    weights = attention(q, k, v, may, bias, causal)[1]
    mask = masked(q, k, may, causal)
    weights = softmax_or_zeros(weights if mask is None else weights.masked_fill(~mask, -math.inf))
    return weights @ v, weights


def wrong_heads(split: bool, merge: bool) -> Callable[[nn.Module], None]:
    """Views where there should be a view and a transpose: nothing crashes, tokens and heads are mixed."""

    def change(model: nn.Module) -> None:
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                if split:
                    module.split_heads = lambda x, heads: x.view(x.size(0), heads, x.size(1), -1)
                if merge:
                    module.merge_heads = lambda x: x.reshape(x.size(0), x.size(2), -1)

    return change


def every_layer(change: Callable[[Any], object]) -> Callable[[Any], None]:
    def change_all(model: Any) -> None:
        for layer in (*model.encoder.layers, *model.decoder.layers):
            change(layer)

    return change_all


def drop_residuals(layer: Any) -> None:
    for name, road in list(layer.named_children()):
        if name.endswith("_residual"):
            setattr(layer, name, NoResidual(road.norm))


def drop_norms(layer: Any) -> None:
    for name, road in layer.named_children():
        if name.endswith("_residual"):
            road.norm = nn.Identity()


class Detached(nn.Module):
    """The encoder, with no gradient through its output."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.layers = encoder.layers
        self.encoder = encoder

    def forward(self, *inputs: Any) -> Tensor:
        output: Tensor = self.encoder(*inputs).detach()
        return output


def detach_encoder(model: Any) -> None:
    model.encoder = Detached(model.encoder)


def share_layers(model: Any) -> None:
    for stack in (model.encoder, model.decoder):
        stack.layers = nn.ModuleList([stack.layers[0]] * len(stack.layers))


BUGS = {
    "healthy": Bug("nothing is wrong", "other"),
    "no causal mask": Bug("the decoder sees what it should predict", "mask", no_causal),
    "mask after softmax": Bug("weights of the future set to zero after the softmax", "mask", after_softmax),
    "scores times triangle": Bug("scores of the future set to zero, not −∞", "mask", triangle),
    "mask one late": Bug("each query sees the token after its own", "mask", shifted_mask(1)),
    "mask one early": Bug("no query sees its own token", "mask", shifted_mask(-1)),
    "padding seen": Bug("padding is attended to", "mask", no_padding),
    "labels not shifted": Bug("the decoder is given the token it should predict", "mask", unshifted=True),
    "heads split by a view": Bug("(B, S, D) viewed as (B, H, S, d)", "other", change=wrong_heads(True, False)),
    "heads merged by a view": Bug("(B, H, S, d) viewed as (B, S, D)", "other", change=wrong_heads(False, True)),
    "both by a view": Bug("heads split and merged by views", "other", change=wrong_heads(True, True)),
    "softmax over queries": Bug("the softmax runs over the wrong axis", "other", over_queries),
    "softmax twice": Bug("the softmax of the softmax", "other", softmax_twice),
    "not scaled": Bug("scores not divided by √d", "other", scaled_by(0.5)),
    "scaled by d": Bug("scores divided by d instead of √d", "other", scaled_by(-0.5)),
    "keys as values": Bug("keys are mixed instead of values", "other", keys_as_values),
    "no positions": Bug("positions left out", "other", config={"positions": {"kind": "none"}}),
    "embedding not scaled": Bug("the √d_model is left out", "other", config={"embedding": {"scaled": False}}),
    "no residual": Bug("sub-layers without the road around them", "other", change=every_layer(drop_residuals)),
    "no norm": Bug("norms left out of every layer", "other", change=every_layer(drop_norms)),
    "encoder detached": Bug("no gradient reaches the encoder", "other", change=detach_encoder),
    "layers shared": Bug("all layers of a stack are one", "other", change=share_layers),
}
