"""The residual stream's guess after each sub-layer: the last norm and the head, applied early.

All sub-layers add to one stream, so its state can be read as the head reads the last one (nostalgebraist's logit lens,
2020). A guess is what the model would answer if it stopped there; it was not trained to be read before the end.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.decoding.load import LoadedModel
from clearhead.explore.readings import Reading
from clearhead.model import EncoderOnly, Trace


@dataclass(frozen=True)
class Guesses:
    """After one sub-layer, for each token of the answer."""

    at: str  # embedding, decoder.1.self, decoder.1.cross, decoder.1.ff
    tensor: str  # the name of the state in a trace
    best: list[int]
    probability: list[float]  # of the best
    right: list[float]  # of the token of the answer


@torch.inference_mode()
def early_guesses(loaded: LoadedModel, reading: Reading, taken: Trace) -> list[Guesses]:
    """For every state of the stack that answers, from the embedding to the last sub-layer."""
    model = loaded.model
    stack = "encoder" if isinstance(model, EncoderOnly) else "decoder"
    final = model.encoder.norm if isinstance(model, EncoderOnly) else model.decoder.norm
    picked, result = torch.tensor(reading.answer, device=loaded.device), []
    for at, name in stream(loaded, stack):
        state: Tensor = taken[name]
        hidden = state if final is None else final(state)
        rows = hidden[:, list(reading.rows)]
        made = model.head(hidden if isinstance(model, EncoderOnly) and made_of_whole(loaded) else rows)
        chances = (made[:, None] if made.dim() == 2 else made)[0].float().softmax(-1)  # (rows, V)
        best = chances.max(-1)
        right = chances.gather(1, picked[:, None])[:, 0]
        result.append(Guesses(at, name, best.indices.tolist(), best.values.tolist(), right.tolist()))
    return result


def made_of_whole(loaded: LoadedModel) -> bool:
    """Whether the head looks at the whole sequence: a pooled one picks its first token itself."""
    return loaded.model.config.head.kind == "pooled"


def stream(loaded: LoadedModel, stack: str) -> list[tuple[str, str]]:
    """The states of the residual stream in order: where they stand, and their names in a trace."""
    config = loaded.model.config
    last = "norm.norm" if config.norm.placement == "post" else "residual"
    crossing = config.kind == "encoder-decoder"
    parts = [("self", "self_attention"), *([("cross", "cross_attention")] if crossing else []), ("ff", "feed_forward")]
    states = [("embedding", "embedding.embedding#2" if crossing else "embedding.embedding")]
    for layer in range(config.encoder_layers if stack == "encoder" else config.decoder_layers):
        for short, part in parts:
            states.append((f"{stack}.{layer + 1}.{short}", f"{stack}.layers.{layer}.{part}_residual.{last}"))
    return states
