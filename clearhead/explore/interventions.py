"""Interventions: one piece of a trained model taken away or made otherwise, as edits of a trace.

Each function gives an `Edit` by the names of `clearhead.trace`; `combine` puts several together. The weights stay as
they are, so this shows what a piece does in the model that was trained with it, not what training without it would
make: for that, see the lab.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.model import ModelConfig, Trace
from clearhead.model.trace import Edit


@dataclass(frozen=True)
class Place:
    """One attention of a model."""

    stack: str  # encoder or decoder
    layer: int  # from 0
    kind: str  # self or cross

    @property
    def path(self) -> str:
        """As a trace has it."""
        return f"{self.stack}.layers.{self.layer}.{self.kind}_attention"

    def __str__(self) -> str:
        """As people count, from 1: decoder.2.cross."""
        return f"{self.stack}.{self.layer + 1}.{self.kind}"


def places(config: ModelConfig) -> Iterator[Place]:
    """Every attention, in the order of a pass."""
    for layer in range(config.encoder_layers):
        yield Place("encoder", layer, "self")
    for layer in range(config.decoder_layers):
        yield Place("decoder", layer, "self")
        if config.kind == "encoder-decoder":
            yield Place("decoder", layer, "cross")


def find_head(config: ModelConfig, name: str) -> tuple[Place, int]:
    """ "decoder.2.cross.3", layer and head counted from 1, as an attention and its head counted from 0."""
    found = re.fullmatch(r"(encoder|decoder)\.([1-9]\d{0,5})\.(self|cross)\.([1-9]\d{0,5})", name, re.ASCII)
    if found:
        place, head = Place(found[1], int(found[2]) - 1, found[3]), int(found[4]) - 1
        if head < config.heads and place in places(config):
            return place, head
    there = ", ".join(str(place) for place in list(places(config))[:6])
    raise InputError(
        f"no head {name!r:.80} in this model: wanted stack.layer.kind.head, counted from 1, "
        f"head up to {config.heads}; attentions are {there} …"
    )


def combine(*edits: Edit) -> Edit:
    """All of them at once; two edits of one tensor follow each other."""
    result: dict[str, Callable[[Tensor], Tensor]] = {}
    for edit in edits:
        for name, change in edit.items():
            result[name] = partial(_after, result[name], change) if name in result else change
    return result


def _after(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    return second(first(tensor))


# ---- heads and layers ----------------------------------------------------------------------------------------------


def silence(place: Place, head: int) -> Edit:
    """The head hands over nothing: its context is zero."""

    def change(context: Tensor) -> Tensor:  # (B, H, S, d)
        context[:, head] = 0
        return context

    return {f"{place.path}.context": change}


def even(place: Place, head: int) -> Edit:
    """The head looks at all keys that it may see alike."""

    def change(weights: Tensor) -> Tensor:  # (B, H, S, T); what is masked has weight zero
        seen = (weights[:, head] > 0).to(weights.dtype)
        weights[:, head] = seen / seen.sum(-1, keepdim=True).clamp(min=1)
        return weights

    return {f"{place.path}.weights": change}


def without_layer(config: ModelConfig, stack: str, layer: int) -> Edit:
    """The layer's sub-layers add nothing to the residual stream."""
    crossing = stack == "decoder" and config.kind == "encoder-decoder"
    parts = ["self_attention", *(["cross_attention"] if crossing else []), "feed_forward"]
    return {f"{stack}.layers.{layer}.{part}.output": torch.zeros_like for part in parts}


def swap_in(other: Trace, *names: str) -> Edit:
    """Tensors as they were in a pass over another input of the same length."""

    def taken(name: str, _: Tensor) -> Tensor:
        return other[name]

    return {name: partial(taken, name) for name in names}


# ---- switches ------------------------------------------------------------------------------------------------------


def no_scale(config: ModelConfig) -> Edit:
    """Scores are q kᵀ, not divided by √d; what is added to them (ALiBi) stays as it is."""
    edits: list[Edit] = []
    for place in places(config):
        kept: dict[str, Tensor] = {}

        def keep(name: str, tensor: Tensor, kept: dict[str, Tensor] = kept) -> Tensor:
            kept[name] = tensor
            return tensor

        def change(scores: Tensor, kept: dict[str, Tensor] = kept) -> Tensor:
            q, k = kept["q"], kept["k"]
            products = q @ k.repeat_interleave(q.size(1) // k.size(1), dim=1).transpose(-2, -1)
            return scores + products * (1 - 1 / math.sqrt(q.size(-1)))

        path = place.path
        edits.append({f"{path}.q": partial(keep, "q"), f"{path}.k": partial(keep, "k"), f"{path}.scores": change})
    return combine(*edits)


def masked_places(config: ModelConfig) -> list[Place]:
    """The attentions that may not see what comes later."""
    return [place for place in places(config) if place.stack == "decoder" and place.kind == "self"]


def no_mask(config: ModelConfig) -> Edit:
    """Every token sees the later ones, too."""
    return {f"{place.path}.mask": torch.ones_like for place in masked_places(config)}


def late_mask(config: ModelConfig) -> Edit:
    """The mask comes after the softmax: rows no longer sum to one."""
    edits: list[Edit] = []
    for place in masked_places(config):
        kept: list[Tensor] = []

        def lift(mask: Tensor, kept: list[Tensor] = kept) -> Tensor:
            kept[:] = [mask]
            return torch.ones_like(mask)

        def apply(weights: Tensor, kept: list[Tensor] = kept) -> Tensor:
            return weights * kept[0]

        edits.append({f"{place.path}.mask": lift, f"{place.path}.weights": apply})
    return combine(*edits)


def no_positions(config: ModelConfig) -> Edit:
    """Attention sees a heap of tokens, whatever kind of position the model has."""
    stacks = [*["encoder"] * (config.encoder_layers > 0), *["decoder"] * (config.decoder_layers > 0)]
    if config.positions.kind in ("sinusoidal", "learned"):
        return {"embedding.positions": torch.zeros_like}
    if config.positions.kind == "alibi":
        return {f"{stack}.attention_inputs.bias": torch.zeros_like for stack in stacks}
    if config.positions.kind == "rope":  # turned by no angle
        turns = {"cos": torch.ones_like, "sin": torch.zeros_like}
        return {f"{stack}.attention_inputs.{name}": change for stack in stacks for name, change in turns.items()}
    return {}


def one_head(config: ModelConfig) -> Edit:
    """Only the first head of each attention speaks."""

    def change(context: Tensor) -> Tensor:
        context[:, 1:] = 0
        return context

    return {f"{place.path}.context": change for place in places(config)}


def no_norm(config: ModelConfig) -> Edit:
    """The norms inside the layers give back what they got; that after the last layer, and the embedding's, stay."""
    stream: list[Tensor] = []  # what a norm gets is what was last put on the residual stream

    def keep(tensor: Tensor) -> Tensor:
        stream[:] = [tensor]
        return tensor

    def give_back(_: Tensor) -> Tensor:
        return stream[0]

    edit: dict[str, Callable[[Tensor], Tensor]] = {"embedding.embedding": keep}
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        crossing = stack == "decoder" and config.kind == "encoder-decoder"
        for layer in range(layers):
            for part in ("self_attention", *(["cross_attention"] if crossing else []), "feed_forward"):
                path = f"{stack}.layers.{layer}.{part}_residual"
                edit[f"{path}.norm.norm"], edit[f"{path}.residual"] = give_back, keep
    return edit


def no_embedding_scale(config: ModelConfig) -> Edit:
    """Embeddings enter as they are, not times √D."""
    return {"embedding.tokens": lambda rows: rows / math.sqrt(config.d_model)} if config.embedding.scaled else {}


def no_feed_forward(config: ModelConfig) -> Edit:
    """The feed-forward networks add nothing."""
    stacks = (("encoder", config.encoder_layers), ("decoder", config.decoder_layers))
    names = [f"{stack}.layers.{layer}.feed_forward.output" for stack, layers in stacks for layer in range(layers)]
    return dict.fromkeys(names, torch.zeros_like)


@dataclass(frozen=True)
class Switch:
    """One piece that can be left out of a trained model."""

    name: str  # what is there while it is on
    code: str  # the line as it is without
    edit: Callable[[ModelConfig], Edit]  # empty where the model has no such piece
    experiment: str = ""  # the lab's, on training without it


SWITCHES: dict[str, Switch] = {
    "scale": Switch("Divide by √d", "scores = q @ kᵀ", no_scale, "scaling"),
    "mask": Switch("The causal mask", "may_attend = None", no_mask, "causal-mask"),
    "late": Switch("Mask before the softmax", "weights = softmax(scores) * mask", late_mask, "causal-mask"),
    "positions": Switch("Positions", "x = E[ids] * √D", no_positions, "positions"),
    "onehead": Switch("All heads", "context[:, 1:] = 0", one_head, "heads"),
    "norm": Switch("The norms in the layers", "y = sublayer(x)", no_norm, "norm-and-residual"),
    "sqrtD": Switch("Embeddings × √D", "x = E[ids] + positions", no_embedding_scale),
    "ff": Switch("Feed-forward", "return 0 * x", no_feed_forward),
}
ORDER = ("norm", "sqrtD", "positions", "scale", "mask", "late", "onehead", "ff")  # in which several are combined


def switched(config: ModelConfig, names: list[str]) -> Edit:
    """The edits of these switches, refused by name where there is no such piece to leave out."""
    for name in names:
        if name not in SWITCHES or not SWITCHES[name].edit(config):
            there = ", ".join(one for one, switch in SWITCHES.items() if switch.edit(config))
            raise InputError(f"no switch {name!r:.80} for this model; it has {there}")
    return combine(*(SWITCHES[name].edit(config) for name in ORDER if name in names))
