"""Which source token each target token came from, read off the cross-attention.

A row of cross-attention belongs to the token being predicted: the query stands at the token before it. The weights are
averaged over the heads of one layer, and each target token is linked to the source token with the largest weight.
The layer is the last but one (Garg et al., 2019, "Jointly Learning to Align and Translate", found that the average of
that layer's heads agrees best with human alignments: the last layer already prepares the output); a model of one layer
has only that one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.decoding.scoring import right_pad
from clearhead.model import EncoderDecoder, trace


class Link(NamedTuple):
    """Token number `target` of the translation looks most at token number `source`."""

    target: int
    source: int
    weight: float


def alignment_layer(model: EncoderDecoder) -> int:
    """Counted from 0."""
    return max(0, model.config.decoder_layers - 2)


@torch.inference_mode()
def cross_attention(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Tensor:
    """Weights (B, S, T) of the alignment layer, the heads averaged; targets begin with <s>."""
    device = model.embedding.weight.device
    source, padding = right_pad(sources, device)
    target, _ = right_pad(targets, device)
    with trace(model) as recorded:
        model.hidden(source, target, padding)
    return recorded[f"decoder.layers.{alignment_layer(model)}.cross_attention.weights"].mean(1)


def align(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], start: int
) -> list[list[Link]]:
    """Links of each target (without marks) to its source."""
    weights = cross_attention(model, sources, [[start, *target] for target in targets])
    best = weights.max(-1)
    return [
        [Link(i, int(best.indices[row, i]), float(best.values[row, i])) for i in range(len(target))]
        for row, target in enumerate(targets)
    ]
