"""Weights under other people's names, into our models and out of them again.

What differs between two implementations of the same layer is how they name their tensors, and sometimes how they lay
them out: GPT-2 stores matrices as (in, out), many stack query, key and value into one. A family is therefore a table
of rows (theirs, ours, how theirs is laid out), and one pair of functions reads every table, in both directions.
Nothing is dropped or left at its random start in silence: a tensor without a row, a row without a tensor and a shape
that does not fit are all named.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.model import ModelConfig, Transformer, build
from clearhead.skeleton import skeleton


@dataclass(frozen=True)
class Layout:
    """How a tensor of theirs becomes one of ours, and back."""

    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor]


def _turn(tensor: Tensor) -> Tensor:
    return tensor.t() if tensor.dim() == 2 else tensor


AS_IT_IS = Layout(lambda tensor: tensor, lambda tensor: tensor)
TURNED = Layout(_turn, _turn)  # matrices stored as (in, out) instead of (out, in); a bias has no sides to swap
FLAT = Layout(lambda tensor: tensor.reshape(-1), lambda tensor: tensor.reshape(1, -1))  # a matrix of one row


@dataclass(frozen=True)
class Row:
    """One line of a family's table. In both names {n} is a layer number and {p} is `weight` or `bias`."""

    theirs: str
    ours: tuple[str, ...]  # several: theirs is all of them, stacked along the output dimension; none: not a weight
    layout: Layout = AS_IT_IS
    left_out: bool = False  # a weight, but of a part that our model does not have

    def match(self, name: str) -> dict[str, str] | None:
        """What {n} and {p} stand for if this row is about `name`, otherwise None."""
        return _match(self.theirs, name)


def _match(pattern: str, name: str) -> dict[str, str] | None:
    written = re.escape(pattern).replace(r"\{n\}", r"(?P<n>\d+)").replace(r"\{p\}", "(?P<p>weight|bias)")
    found = re.fullmatch(written, name)
    return None if found is None else found.groupdict()


def row(theirs: str, *ours: str, layout: Layout = AS_IT_IS) -> Row:
    return Row(theirs, ours, layout)


def under(theirs: str, ours: str, rows: Iterable[Row]) -> tuple[Row, ...]:
    """The same rows one level down: those of a layer become those of a stack."""
    return tuple(Row(theirs + r.theirs, tuple(ours + name for name in r.ours), r.layout) for r in rows)


def to_ours(theirs: Mapping[str, Tensor], rows: Iterable[Row]) -> dict[str, Tensor]:
    """Tensors by our names. The map is linear, so it takes gradients as well as weights."""
    rows = list(rows)
    result: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        place = next(((r, blanks) for r in rows if (blanks := r.match(name)) is not None), None)
        if place is None:
            raise InputError(f"no place for the tensor {name!r} of shape {tuple(tensor.shape)}")
        names = [ours.format(**place[1]) for ours in place[0].ours]
        if not names:
            continue
        tensor = place[0].layout.to_ours(tensor)
        if tensor.dim() == 0 or tensor.size(0) % len(names):
            found = f"its shape {tuple(tensor.shape)} does not divide by that"
            raise InputError(f"{name} stacks {len(names)} tensors, but {found}")
        for ours, part in zip(names, tensor.chunk(len(names)), strict=True):
            if ours in result and not torch.equal(result[ours], part):
                raise InputError(f"{name} is a second {ours}, but with other values: our models share one")
            result[ours] = part
    return result


def to_theirs(ours: Mapping[str, Tensor], rows: Iterable[Row], strict: bool = True) -> dict[str, Tensor]:
    """The way back, by the same table: tensors by their names. Of several rows about one tensor of ours the first is
    taken; a tensor without a row is refused, or, if not `strict`, left out."""
    rows, result, used = list(rows), dict[str, Tensor](), set[str]()
    for name in ours:
        if name in used:
            continue
        place = next(((r, blanks) for r in rows for one in r.ours if (blanks := _match(one, name)) is not None), None)
        if place is None:
            if not strict:
                continue
            raise InputError(f"they have no place for our tensor {name!r} of shape {tuple(ours[name].shape)}")
        parts = [one.format(**place[1]) for one in place[0].ours]
        missing = [part for part in parts if part not in ours]
        if missing:
            if not strict:
                continue
            raise InputError(f"they stack {', '.join(parts)} into one tensor, but there is no {missing[0]}")
        stacked = torch.cat([ours[part] for part in parts]) if len(parts) > 1 else ours[name]
        result[place[0].theirs.format(**place[1])] = place[0].layout.to_theirs(stacked)
        used.update(parts)
    return {name: tensor.contiguous() for name, tensor in result.items()}


def build_with(config: ModelConfig, weights: Mapping[str, Tensor]) -> Transformer:
    """The model of a configuration with `weights`, by our names. Sizes are compared before memory is taken for them: a
    configuration from elsewhere may ask for any amount."""
    layers = config.encoder_layers + config.decoder_layers
    if layers > len(weights):
        raise InputError(f"{len(weights)} tensors cannot be {layers:,} layers")
    fitting(skeleton(config), weights)
    model = build(config)
    model.to(torch.promote_types(weights["embedding.weight"].dtype, torch.float32))
    load_weights(model, weights)
    return model


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy `weights`, by our names, into every parameter of the model; refuses a set that does not fit exactly."""
    wanted, given = dict(model.named_parameters()), fitting(model, weights)
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(given[name])


def fitting(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights without a second copy of a tied head, after the check that they are the model's by name and shape."""
    wanted = dict(model.named_parameters())
    given = dict(weights)
    if "output.weight" in given and "output.weight" not in wanted:
        # a tied head is stored as a second copy of the embedding; a different matrix would be another model
        tied = given.pop("output.weight")
        if not torch.equal(tied, given.get("embedding.weight", tied)):
            raise InputError("output.weight differs from embedding.weight, but the configuration says head.tied = true")
    for what, names in (("missing", wanted.keys() - given.keys()), ("unexpected", given.keys() - wanted.keys())):
        if names:
            raise InputError(f"{what} tensors: {', '.join(sorted(names)[:5])}{' …' if len(names) > 5 else ''}")
    for name, parameter in wanted.items():
        if parameter.shape != given[name].shape:
            raise InputError(f"{name}: found shape {tuple(given[name].shape)}, wanted {tuple(parameter.shape)}")
        if not given[name].is_floating_point():
            raise InputError(f"{name}: found {given[name].dtype}, and floats are wanted")
    return given
