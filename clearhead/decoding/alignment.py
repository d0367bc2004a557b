"""Which source token each target token came from, read off the cross-attention.

A row of cross-attention belongs to the token being predicted: the query stands at the token before it. The heads of a
layer are averaged, because they share the work, and each target token is linked to the source token with the largest
weight. Which layer aligns differs from model to model: in deep ones it is the last but one (Garg et al., 2019), because
the last already prepares the output; in shallow ones often the last. So the layer is chosen for each sentence: the one
that is most certain, with the lowest entropy. On copying and reversing lists, where the right answer is known, this
finds 95 to 100 % of the links, and "always the last but one" as few as 71 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.decoding.scoring import right_pad
from clearhead.model import EncoderDecoder, trace


class Link(NamedTuple):
    """Token number `target` of the translation looks most at token number `source`, with this weight."""

    target: int
    source: int
    weight: float


@dataclass(frozen=True)
class Alignment:
    """A link for each target token, by the averaged heads of one layer, counted from 1."""

    layer: int
    links: list[Link]


def entropy(weights: Tensor) -> Tensor:
    """−Σ w log₂ w over the last dimension, in bits; 0 log 0 is 0."""
    return -torch.special.xlogy(weights, weights).sum(-1) / torch.log(torch.tensor(2.0))


@torch.inference_mode()
def align(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], start: int
) -> list[Alignment]:
    """Align each target (without marks) with its source."""
    device = model.embedding.weight.device
    source, real = right_pad(sources, device)
    target, _ = right_pad([[start, *target] for target in targets], device)
    with trace(model) as recorded:
        model.hidden(source, target, real)
    layers = [
        recorded[f"decoder.layers.{layer}.cross_attention.weights"].mean(1)  # (B, S, T)
        for layer in range(model.config.decoder_layers)
    ]
    return [one_alignment([weights[row] for weights in layers], len(target)) for row, target in enumerate(targets)]


def one_alignment(layers: Sequence[Tensor], length: int) -> Alignment:
    """The most certain layer's largest weights, for the first `length` rows of (S, T)."""
    certain = min(range(len(layers)), key=lambda layer: float(entropy(layers[layer][:length]).sum()))
    best = layers[certain][:length].max(-1)
    links = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return Alignment(certain + 1, [Link(i, source, weight) for i, (source, weight) in enumerate(links)])
