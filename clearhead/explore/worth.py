"""What each head and each layer is worth for one text: how much log-probability the answer loses without it.

Where a head looks is not what it does: a head with a striking pattern may matter to nothing. So it is taken away: its
context becomes zero, the answer is read in one pass, and what its tokens lose in log-probability is the head's worth,
in nats. A layer is taken away by letting its sub-layers add nothing. Worths do not add up: two heads may do the same,
and either alone is then not missed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.decoding.load import LoadedModel
from clearhead.errors import InputError
from clearhead.explore.interventions import Place, combine, places, without_layer
from clearhead.explore.readings import Reading, outputs
from clearhead.model import trace
from clearhead.model.trace import Edit

MOST_CELLS = 1 << 22  # attention weights of one pass: heads go through the model together as far as these suffice


@dataclass(frozen=True)
class Worth:
    """A head, or (head None) an attention's whole layer."""

    stack: str
    layer: int  # from 0
    kind: str | None  # self or cross; None: the layer
    head: int | None  # from 0
    by_token: list[float]  # nats that each token of the answer loses without it

    @property
    def name(self) -> str:
        """As people count, from 1: decoder.2.cross.3, or decoder.2 for a layer."""
        layer = f"{self.stack}.{self.layer + 1}"
        return layer if self.kind is None or self.head is None else f"{layer}.{self.kind}.{self.head + 1}"

    @property
    def worth(self) -> float:
        return sum(self.by_token)


@dataclass(frozen=True)
class Worths:
    """Of all heads and layers, in the order of a pass."""

    log_probs: list[float]  # of each token of the answer, with nothing taken away
    heads: list[Worth]
    layers: list[Worth]


@torch.inference_mode()
def worths(loaded: LoadedModel, reading: Reading, edit: Edit | None = None, layers: bool = True) -> Worths:
    """Take each head and each layer away in turn; `edit` holds throughout, as what is already changed."""
    if not reading.answer:
        raise InputError("there is no answer to score: this model's head gives vectors, neither right nor wrong")
    config, edit = loaded.model.config, edit or {}
    picked = torch.tensor(reading.answer, device=loaded.device)

    def log_probs(change: Edit, batch: int) -> Tensor:
        with trace(loaded.model, edit=combine(edit, change)):
            made = outputs(loaded, reading, batch).log_softmax(-1)
        return made.gather(2, picked[None, :, None].expand(batch, -1, 1))[..., 0].double().cpu()  # (batch, rows)

    before = log_probs({}, 1)[0]
    longest = max(len(reading.source), len(reading.read))
    together = max(1, MOST_CELLS // (config.heads * longest * longest))
    heads = []
    for place in places(config):
        for start in range(0, config.heads, together):
            group = list(range(start, min(config.heads, start + together)))
            lost = before - log_probs({f"{place.path}.context": _one_each(group)}, len(group))
            heads += [
                Worth(place.stack, place.layer, place.kind, head, lost[row].tolist()) for row, head in enumerate(group)
            ]
    found = []
    for stack, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(count if layers else 0):
            lost = before - log_probs(without_layer(config, stack, layer), 1)[0]
            found.append(Worth(stack, layer, None, None, lost.tolist()))
    return Worths(before.tolist(), heads, found)


def _one_each(heads: list[int]) -> Callable[[Tensor], Tensor]:
    """In row i of the batch, head number heads[i] hands over nothing."""

    def change(context: Tensor) -> Tensor:  # (B, H, S, d)
        context[torch.arange(len(heads)), torch.tensor(heads)] = 0
        return context

    return change


def place_of(one: Worth) -> Place:
    """The attention a head belongs to."""
    assert one.kind is not None
    return Place(one.stack, one.layer, one.kind)
