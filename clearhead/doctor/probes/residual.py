"""What a sub-layer reads also goes around it: with its matrices at zero, tokens still reach the output.

Every layer in turn is silenced. Around each sub-layer there is a sum that carries the tokens on; where it is missing,
nothing behind that layer knows the tokens any more.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import nn

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.subject import Subject, View, gap


def numbered(deep: Iterable[str], shallow: set[str]) -> dict[int, list[str]]:
    """The parameters of each layer by its number: those whose names continue in a deeper model."""
    deep = list(deep)
    stems = set()
    for name in deep:
        if name in shallow:
            continue
        for found in re.finditer(r"\d+", name):
            before, after = name[: found.start()], name[found.end() :]
            if any(f"{before}{smaller}{after}" in shallow for smaller in range(int(found.group()))):
                stems.add((before, after))
    layers: dict[int, list[str]] = defaultdict(list)
    for name in deep:
        for before, after in stems:
            middle = name[len(before) : len(name) - len(after)]
            if name.startswith(before) and name.endswith(after) and middle.isdigit():
                layers[int(middle)].append(name)
                break
    return layers


def tokens_arrive(subject: Subject, view: View, model: nn.Module, silenced: list[str]) -> bool:
    """With these matrices at zero, do other tokens still give other outputs?"""
    matrices = {name: p for name, p in model.named_parameters() if name in silenced}
    kept = {name: p.detach().clone() for name, p in matrices.items()}
    tokens = subject.tokens(2, 7, seed=63)
    with torch.no_grad():
        for matrix in matrices.values():
            matrix.zero_()
        moved = gap(subject.quiet(view, model, tokens), subject.quiet(view, model, subject.other(tokens)))
        for name, matrix in matrices.items():
            matrix.copy_(kept[name])
    return moved > subject.tolerance(view)


def layers_of(subject: Subject) -> tuple[nn.Module, dict[int, list[str]]]:
    if "layers" not in subject.names:
        raise NotArmed("build takes no layers")
    count = int(subject.sizes.get("layers", 2))
    deep, shallow = subject.model(layers=count + 1), subject.raw(layers=count)
    matrices = [name for name, p in deep.named_parameters() if p.dim() > 1]
    layers = numbered(matrices, {name for name, _ in shallow.named_parameters()})
    if not layers:
        raise NotArmed("a deeper build has no numbered layers of its own")
    return deep, layers


def run(subject: Subject) -> list[Finding]:
    subject.require_exact()
    model, layers = layers_of(subject)
    for view in subject.views:
        if not tokens_arrive(subject, view, model, []):
            continue  # the reach probe says so
        for number, names in sorted(layers.items()):
            if tokens_arrive(subject, view, model, names):
                continue
            alone = next((name for name in names if not tokens_arrive(subject, view, model, [name])), None)
            what = alone or f"the matrices of layer {number} ({names[0]} among them)"
            message = (
                f"with {what} at zero, no {view.token} reaches any output: what the sub-layer reads does not go "
                "around it"
            )
            evidence = {"name": alone or "", "layer": number, "view": view.name}
            return [Finding("residual.missing", ERROR, message, evidence)]
    return []
