"""The shape cheat-sheet: every named tensor of a pass, with the letters of its dimensions and their numbers.

Names and shapes are read off a traced pass of the model itself, so they cannot say what the code does not do; what each
tensor is, is said here. The pass has padding, so that the masks are there to be seen, and tensors without memory, so
that it costs the same for every preset.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.cost.account import Size, at_most
from clearhead.cost.memoryless import without_memory
from clearhead.model import ModelConfig, trace
from clearhead.skeleton import skeleton

MEANINGS = {
    "embedding.tokens": "a row for each id",
    "embedding.positions": "added to the scaled rows",
    "embedding.embedding": "enters the first layer",
    "cos": "turn q and k by their place",
    "sin": "turn q and k by their place",
    "bias": "−m × distance",
    "q": "what each looks for",
    "k": "what each is found by",
    "v": "what each hands over",
    "scores": "q kᵀ / √d",
    "mask": "True = may attend",
    "weights": "softmax: rows sum to one",
    "context": "weights × v",
    "attention.output": "heads merged, times W_O",
    "residual": "x + sub-layer(x)",
    "norm": "brought to standard size",
    "hidden": "the wide inner layer",
    "feed_forward.output": "back to the model width",
    "pooled": "the first speaks for all",
    "logits": "a score for every token",
}


@dataclass(frozen=True)
class Shape:
    """One row of the sheet."""

    stack: str  # encoder or decoder for what every layer has, else ""
    layers: int  # how many of them
    module: str  # path of the module that makes it, inside its layer: "self_attention_residual.norm"
    name: str  # "q"; where a module runs twice, the second time "q#2"
    letters: tuple[str, ...]  # "B", "S", …; a dimension of size one that broadcasts is "1"
    sizes: tuple[int, ...]
    meaning: str


def sheet(config: ModelConfig, size: Size | None = None) -> list[Shape]:
    """The shapes of one pass, in the order in which the tensors are made; the layers of a stack once."""
    size = size or Size()
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    with without_memory(), torch.no_grad():
        model = skeleton(at_most(config, 1)).eval()  # to look at: the other layers are like it
        inputs = size.inputs(config)
        with trace(model) as taken:
            model(*inputs, *(torch.ones(ids.shape, dtype=torch.bool) for ids in inputs))
    rows = []
    for path, tensor in taken.tensors.items():
        module, _, name = path.rpartition(".")
        stack, _, inside = module.partition(".layers.0.")
        stack, module = (stack, inside) if inside else ("", module)
        letters = spell(name, taken.letters[path], tensor)
        said = meaning(config, module, name)
        rows.append(Shape(stack, layers.get(stack, 1), module, name, letters, tuple(tensor.shape), said))
    return rows


def spell(name: str, letters: str, tensor: Tensor) -> tuple[str, ...]:
    """A letter for each dimension; what is the same for all heads, as masks are, says 1 where it broadcasts."""
    named = zip(letters.split(), tensor.shape, strict=True)
    shared = name in ("mask", "cos", "sin")
    return tuple("1" if shared and size == 1 and letter != "B" else letter for letter, size in named)


def meaning(config: ModelConfig, module: str, name: str) -> str:
    """What the tensor is, in a few words; `output` means one thing in attention and another in feed-forward."""
    name = name.split("#")[0]
    if name == "positions" and not config.embedding.scaled:
        return "added to the rows"
    if name == "residual" and config.norm.placement == "pre":
        return "x + sub-layer(norm(x))"
    if name == "scores" and module == "self_attention" and config.positions.kind == "alibi":
        return "q kᵀ / √d − m × distance"
    owner = "attention" if module.endswith("attention") else module
    return MEANINGS.get(f"{owner}.{name}", MEANINGS.get(name, ""))
