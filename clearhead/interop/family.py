"""What a family of other people's models is to us, and how any of them is read and written.

A family is a file in `families/`: a table of tensor names, a function from their configuration to ours, and one back.
Reading (`read`) and writing (`write`) are here, once for all of them. Whether their models can do what one of ours
does is not written down twice: our configuration is translated to theirs and back, and what has changed on the way is
what they cannot do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.errors import InputError
from clearhead.interop.keys import HARMLESS, Keys
from clearhead.interop.layout import laid_out
from clearhead.interop.weights import Row, build_with, to_ours, to_theirs
from clearhead.model import ModelConfig, Transformer
from clearhead.settings import to_dict
from clearhead.skeleton import skeleton

State = Mapping[str, Tensor]
IGNORED = ("dropout", "init", "kernels")  # nothing of these is left in what a trained model computes


@dataclass(frozen=True)
class Family:
    """Someone else's models, as far as they are models of ours."""

    model_type: str  # as `config.json` has it
    rows: Callable[[ModelConfig], tuple[Row, ...]]  # their names in full, as their class with a head writes them
    describe: Callable[[Keys, State], ModelConfig]  # their configuration -> ours
    settings: Callable[[ModelConfig], dict[str, Any]]  # ours -> theirs
    architecture: Callable[[ModelConfig], str]  # the class of `transformers` that holds such a model
    prefix: str = ""  # what their classes with a head put before the names of the base model
    bare: frozenset[str] = frozenset()  # architectures that are the base model, and leave the prefix out
    harmless: frozenset[str] = frozenset()  # keys of theirs that change nothing, besides those of every family
    older: tuple[tuple[str, str], ...] = ()  # ends of names as earlier versions wrote them, and as they are written now

    def named(self, state: State) -> dict[str, Tensor]:
        """Their tensors by the names of the table: with the prefix that a base model leaves out, and today's ends."""
        bare = bool(self.prefix) and not any(name.startswith(self.prefix) for name in state)
        result = {}
        for name, tensor in state.items():
            for old, new in self.older:
                name = name.removesuffix(old) + new if name.endswith(old) else name
            result[self.prefix + name if bare and not name.startswith(HEADS) else name] = tensor
        return result


HEADS = ("lm_head.", "cls.", "classifier.", "final_logits_bias")  # what stands beside a base model, not inside it


# ---- theirs -> ours ------------------------------------------------------------------------------------------------


def describe(family: Family, settings: Mapping[str, Any], state: State) -> ModelConfig:
    """Our configuration of their settings; every key of them is used, harmless, or refused by name."""
    keys = Keys(settings)
    keys.only(is_decoder=False, add_cross_attention=False, tie_encoder_decoder=False)
    try:
        config = family.describe(keys, state)
    except ArithmeticError as error:  # zero heads
        raise InputError(f"the configuration of a {family.model_type!r} cannot be read: {error}") from None
    keys.refuse_others(family.harmless | HARMLESS)
    return config


def read(family: Family, settings: Mapping[str, Any], state: State) -> Transformer:
    """Our model with their weights, in float32, or float64 if they are; 16-bit weights lose nothing by it."""
    named = family.named(state)
    config = describe(family, settings, named)
    rows = family.rows(config)
    check_fit(config, rows, named)
    return build_with(config, to_ours(named, rows))


def check_fit(config: ModelConfig, rows: tuple[Row, ...], theirs: State) -> None:
    """Refuse tensors that are not those of such a model, by their own names and shapes, before memory is taken."""
    layers = config.encoder_layers + config.decoder_layers
    if layers > len(theirs):
        raise InputError(f"{len(theirs)} tensors cannot be {layers:,} layers")
    parameters = dict(skeleton(config).named_parameters())
    wanted = to_theirs(parameters, rows)
    supplied = set[str]()
    for name, tensor in theirs.items():
        place = next(((r, blanks) for r in rows if (blanks := r.match(name)) is not None), None)
        ours = [one.format(**place[1]) for one in place[0].ours] if place else []
        tied = ours == ["output.weight"] and config.head.tied
        if place is None or (not tied and any(one not in parameters for one in ours)):
            raise InputError(f"unexpected tensor {name!r} of shape {tuple(tensor.shape)}: such a model has none")
        if name in wanted and tensor.shape != wanted[name].shape:
            found, right = tuple(tensor.shape), tuple(wanted[name].shape)
            raise InputError(f"tensor {name!r}: found shape {found}, wanted {right}")
        if ours and not tensor.is_floating_point():
            raise InputError(f"tensor {name!r}: found {tensor.dtype}, and floats are wanted")
        if ours and not bool(tensor.isfinite().all()):
            raise InputError(f"tensor {name!r} has values that are not finite")
        supplied.update(ours)
    missing = list(to_theirs({k: v for k, v in parameters.items() if k not in supplied}, rows))
    if missing:
        shape = tuple(wanted[missing[0]].shape)
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"missing tensor {missing[0]!r} of shape {shape}{more}")


def left_out(family: Family, config: ModelConfig, state: State) -> tuple[str, ...]:
    """Tensors that our model has no part for: the second head of a model that was pre-trained with two."""
    unused = [row for row in family.rows(config) if row.left_out]
    return tuple(name for name in family.named(state) if any(row.match(name) is not None for row in unused))


# ---- ours -> theirs ------------------------------------------------------------------------------------------------


def unlike(family: Family, config: ModelConfig) -> dict[str, tuple[Any, Any]]:
    """What their models cannot do of ours: the key, our value, and the value theirs would have. Empty: they can all."""
    parameters = dict(skeleton(config).named_parameters())
    known = to_theirs(parameters, family.rows(config), strict=False)
    ours, back = (flat(c) for c in (config, describe(family, family.settings(config), known)))
    return {key: (ours.get(key), back.get(key)) for key in {**ours, **back} if ours.get(key) != back.get(key)}


def flat(config: ModelConfig) -> dict[str, Any]:
    """Every choice that matters to what a trained model computes, with its defaults resolved, by its dotted name."""
    result: dict[str, Any] = {}
    for key, value in to_dict(config).items():
        if key not in IGNORED:
            result |= _dotted(key, value)
    bias = config.bias if config.qkv_bias is None else config.qkv_bias
    return result | {"kv_heads": config.key_value_heads, "head_dim": config.d_head, "qkv_bias": bias}


def _dotted(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {key: value}
    return {name: one for inner, part in value.items() for name, one in _dotted(f"{key}.{inner}", part).items()}


def write(family: Family, config: ModelConfig, weights: State) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Their `config.json`, as far as it follows from ours, and their tensors. A model of ours that theirs can only
    follow in another layout is laid out anew (see `layout`); one that they cannot follow is refused by what differs."""
    config, weights = laid_out(config, weights, set(unlike(family, config)))
    differing = unlike(family, config)
    if differing:
        said = "; ".join(f"{key} = {ours!r}, theirs has {other!r}" for key, (ours, other) in differing.items())
        raise InputError(f"no {family.model_type!r} is like this model: {said}")
    architecture = family.architecture(config)
    theirs = to_theirs(weights, family.rows(config))
    if architecture in family.bare:
        theirs = {name.removeprefix(family.prefix): tensor for name, tensor in theirs.items()}
    settings = {"architectures": [architecture], "model_type": family.model_type, **family.settings(config)}
    return settings, theirs
