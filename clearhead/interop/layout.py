"""The same model laid out in another way: dimensions in another order, biases that are zero.

A layer norm does not care in which order its features come, nor does a dot product. So a model whose sinusoids or
rotations pair neighbouring dimensions (2i, 2i + 1) equals one that pairs i with i + width/2, if everything that touches
those dimensions changes places with them. And a map without a bias equals one whose bias is zero.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from clearhead.model import ModelConfig
from clearhead.skeleton import skeleton

# what of each parameter runs along the model width, where sinusoids are added: its rows, its columns, or all of it
_ROWS = re.compile(r".*(attention\.out|feed_forward\.outer|output\.transform)\.(weight|bias)")
_COLUMNS = re.compile(
    r"(source_)?embedding\.(weight|segments|positions\.weight)"
    r"|.*(query|key|value|inner|gate|output|output\.transform|output\.classify)\.weight"
)
_WHOLE = re.compile(r".*(?<!query_)(?<!key_)norm\.(weight|bias)")
_HEADS = re.compile(r".*\.(query|key)\.(weight|bias)")  # of rotary positions: rows, head by head
_HEAD = re.compile(r".*\.(query|key)_norm\.(weight|bias)")


def evens_first(width: int) -> Tensor:
    """0, 2, 4 … 1, 3, 5 …: which neighbouring dimension goes where when the pairs are split."""
    return torch.arange(width).view(-1, 2).t().reshape(-1)


def laid_out(
    config: ModelConfig, weights: Mapping[str, Tensor], differing: Collection[str]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """An equal model in which of the `differing` keys those that are only a matter of layout differ no more."""
    weights = dict(weights)
    if "positions.layout" in differing and config.positions.layout == "interleaved":
        weights = {name: split(config, name, tensor) for name, tensor in weights.items()}
        config = replace(config, positions=replace(config.positions, layout="split"))
    if "bias" in differing and not config.bias:
        config = replace(config, bias=True, qkv_bias=None if "qkv_bias" in differing else config.qkv_bias)
    if "qkv_bias" in differing and config.qkv_bias is False:
        config = replace(config, qkv_bias=True)
    if "head.bias" in differing and not config.head.bias:
        config = replace(config, head=replace(config.head, bias=True))
    like = weights["embedding.weight"]
    for name, parameter in skeleton(config).named_parameters():
        if name.endswith("bias") and name not in weights:
            weights[name] = torch.zeros(parameter.shape, dtype=like.dtype, device=like.device)
    return config, weights


def split(config: ModelConfig, name: str, tensor: Tensor) -> Tensor:
    """One parameter of a model with interleaved pairs, as the same model with split pairs has it."""
    if config.positions.kind == "rope":
        order = evens_first(config.d_head)
        if _HEADS.fullmatch(name):
            return tensor.unflatten(0, (-1, config.d_head))[:, order].flatten(0, 1)
        return tensor[order] if _HEAD.fullmatch(name) else tensor
    if config.positions.kind != "sinusoidal":
        return tensor
    order = evens_first(config.d_model)
    if _ROWS.fullmatch(name) or _WHOLE.fullmatch(name):
        tensor = tensor[order]
    return tensor[:, order] if _COLUMNS.fullmatch(name) else tensor
