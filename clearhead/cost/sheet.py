"""The shape cheat-sheet: every named tensor of a pass, with the letters of its dimensions and their numbers.

It is read off a traced pass of the model itself, so it cannot say what the code does not do. The pass has padding, so
that the masks are there to be seen, and tensors without memory, so that it costs the same for every preset.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.cost.account import Size, without_memory
from clearhead.model import ModelConfig, build, trace

MEANINGS = {
    "embedding.tokens": "a row of the embedding matrix for each id",
    "embedding.positions": "added to the scaled rows",
    "embedding.embedding": "what enters the first layer",
    "q": "what each token looks for, in each head",
    "k": "what each token offers to be found by",
    "v": "what each token hands over when found",
    "scores": "q kᵀ / √d: how well they match",
    "mask": "True = may attend",
    "weights": "softmax over T: each row sums to one",
    "context": "weights × v",
    "attention.output": "heads side by side again, times W_O",
    "residual": "x + sub-layer(x)",
    "norm": "each token's vector at a standard size",
    "hidden": "the wide inner layer, after its activation",
    "feed_forward.output": "back to the model's width",
    "pooled": "the first token speaks for all",
    "logits": "a score for every next token",
}


@dataclass(frozen=True)
class Shape:
    """One row of the sheet. `where` is the module's path with layer 0 standing for all `layers` of them."""

    where: str
    name: str
    letters: tuple[str, ...]  # "B", "S", …; a dimension of size one that broadcasts is "1"
    sizes: tuple[int, ...]
    layers: int  # how often the tensor exists in one pass
    meaning: str


def sheet(config: ModelConfig, size: Size | None = None) -> list[Shape]:
    """The shapes of one pass, in the order in which the tensors are made; alike layers once."""
    size = size or Size()
    with without_memory(), torch.no_grad():
        model = build(config).eval()
        inputs = size.inputs(config)
        with trace(model) as taken:
            model(*inputs, *(torch.ones(ids.shape, dtype=torch.bool) for ids in inputs))
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    rows = []
    for path, tensor in taken.tensors.items():
        where, _, name = path.rpartition(".")
        stack, _, rest = where.partition(".layers.")
        number, _, inside = rest.partition(".")
        if rest and number != "0":
            continue
        rows.append(
            Shape(
                where=f"{stack}.{inside}" if rest else where,
                name=name,
                letters=spell(taken.letters[path], tensor),
                sizes=tuple(tensor.shape),
                layers=layers[stack] if rest else 1,
                meaning=meaning(where, name),
            )
        )
    return rows


def spell(letters: str, tensor: Tensor) -> tuple[str, ...]:
    """A letter for each dimension. A mask has four or two, and says 1 where it broadcasts."""
    spelled = letters.split() or ["B", "H", "S", "T"][-tensor.dim() :]
    return tuple("1" if size == 1 else letter for letter, size in zip(spelled, tensor.shape, strict=True))


def meaning(where: str, name: str) -> str:
    """What the tensor is, in a few words; `output` means one thing in attention and another in feed-forward."""
    name = name.split("#")[0]
    owner = "attention" if where.endswith("attention") else where.rpartition(".")[2]
    return MEANINGS.get(f"{owner}.{name}", MEANINGS.get(name, ""))
