"""The parameters of each layer, also where one tensor holds those of all layers and layer i reads its row i.

Such a stack has one more row in a model of one more layer. What is asked of parameters (is each used, trained, another
than its neighbour's?) is asked of each row: a row is to its layer what a parameter is elsewhere.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import NotArmed
from clearhead.doctor.subject import Subject

Layers = dict[tuple[str, int], list[str]]  # what comes before the number of a layer, and the number: its parameters


@dataclass(frozen=True)
class Part:
    """A parameter, or one layer's row of a stack of them."""

    name: str
    parameter: Tensor
    row: int | None = None  # of a stack: the layer

    @property
    def stack(self) -> str:
        return self.name if self.row is None else self.name.rpartition("[")[0]

    def view(self) -> Tensor:
        """The numbers themselves, to be read and changed without gradients."""
        return self.parameter.detach() if self.row is None else self.parameter.detach()[self.row]

    def gradient(self) -> Tensor | None:
        given = self.parameter.grad
        return given if given is None or self.row is None else given[self.row]


def stacks(subject: Subject) -> set[str]:
    """The names of parameters that hold one row for each layer; none where the depth cannot be changed."""
    if subject.stacks is None:
        subject.stacks = found_stacks(subject)
    return subject.stacks


def found_stacks(subject: Subject) -> set[str]:
    count = subject.sizes.get("layers")
    if "layers" not in subject.names or not isinstance(count, int):
        return set()
    try:
        deep = dict(subject.raw(layers=count + 1).named_parameters())
    except NotArmed:
        return set()
    return {
        name
        for name, p in subject.raw().named_parameters()
        if p.dim() > 1 and name in deep and len(p) == count and deep[name].shape == (count + 1, *p.shape[1:])
    }


def parts(model: nn.Module, stacked: Iterable[str]) -> list[Part]:
    """Every parameter of the model; of stacked ones every row."""
    known, found = set(stacked), []
    for name, parameter in model.named_parameters():
        if name in known:
            found += [Part(f"{name}[{row}]", parameter, row) for row in range(len(parameter))]
        else:
            found.append(Part(name, parameter))
    return found


def numbered(deep: Iterable[str], shallow: set[str]) -> Layers:
    """The parameters of each layer of each stack: those whose names continue in a deeper model."""
    deep = list(deep)
    stems = set()
    for name in deep:
        if name in shallow:
            continue
        for found in re.finditer(r"\d+", name):
            before, after = name[: found.start()], name[found.end() :]
            if any(f"{before}{smaller}{after}" in shallow for smaller in range(int(found.group()))):
                stems.add((before, after))
    layers: Layers = defaultdict(list)
    for name in deep:
        for before, after in stems:
            middle = name[len(before) : len(name) - len(after)]
            if name.startswith(before) and name.endswith(after) and middle.isdigit():
                stack = after == "]"  # each parameter is one: together their rows are the layer
                layers["" if stack else before, int(middle)].append(name)
                break
    return layers


def kin(subject: Subject) -> dict[str, str]:
    """Parameters that the layers have: each name, and what it has in common with its like in other layers."""
    count = subject.sizes.get("layers")
    if "layers" not in subject.names or not isinstance(count, int):
        return {}
    try:
        deep = subject.raw(layers=count + 1)
    except NotArmed:
        return {}
    stacked = stacks(subject)
    known = {part.name for part in parts(subject.raw(), stacked)}
    found = numbered([part.name for part in parts(deep, stacked)], known)
    return {
        name: f"{before}#{name[len(before) + len(str(number)) :]}" if before else name.rpartition("[")[0]
        for (before, number), names in found.items()
        for name in names
    }


@contextmanager
def silenced(model: nn.Module, names: Iterable[str], stacked: Iterable[str] = ()) -> Iterator[None]:
    """These parts at zero for a while."""
    wanted = set(names)
    chosen = [part.view() for part in parts(model, stacked) if part.name in wanted]
    kept = [numbers.clone() for numbers in chosen]
    with torch.no_grad():
        for numbers in chosen:
            numbers.zero_()
        try:
            yield
        finally:
            for numbers, old in zip(chosen, kept, strict=True):
                numbers.copy_(old)
