"""The gradient is the slope: a small step along any direction moves the outputs by what the gradients say.

A part of the graph that was cut leaves gradients that are not zero and still wrong: they forget one of the ways a
parameter acts. In float64 the slope can be measured, from both sides and at two sizes of step; where these agree, there
is no kink in between, and nothing but a cut explains that the gradient says something else.
"""

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, WARNING, Finding
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject

STEPS = (1e-5, 3e-6)
ALIKE = 1e-4  # two slopes of a smooth place, relative to the larger
WRONG = 1e-2


def wrong_gradient(subject: Subject) -> list[Finding]:
    """Along a random direction of all parameters together; if the gradient is wrong, of each one."""
    if subject.dtype != torch.float64 or subject.spec.coupled or not subject.exact():
        return []
    model = subject.without_dropout().train()
    inputs = subject.inputs(2, 7, seed=46)
    with torch.no_grad():
        weights = torch.randn_like(subject.whole(model, inputs))
    out = subject.forward(model, inputs)
    total = (out * weights).sum()
    named = {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
    if not named or not total.requires_grad or any(p.dtype != torch.float64 for p in named.values()):
        return []
    given = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    gradients = {name: g for name, g in zip(named, given, strict=True) if g is not None}
    generator = torch.Generator().manual_seed(6)
    directions = {name: torch.randn(named[name].shape, generator=generator, dtype=torch.float64) for name in gradients}

    def differs(names: list[str]) -> tuple[float, float] | None:
        said = sum(float((gradients[name] * directions[name]).sum()) for name in names)
        slopes = [slope(subject, model, inputs, weights, {n: (named[n], directions[n]) for n in names}, size)
                  for size in STEPS]  # fmt: skip
        size = max(abs(said), *(abs(found) for found in slopes))
        if size < 1e-6 or abs(slopes[0] - slopes[1]) > ALIKE * size or abs(slopes[0] - said) <= WRONG * size:
            return None
        return slopes[0], said

    if differs(list(gradients)) is None:
        return []
    wrong = {name: found for name in gradients if (found := differs([name])) is not None}
    if not wrong:
        return []
    name, (measured, said) = next(iter(wrong.items()))
    directions[name] = torch.randn(named[name].shape, generator=generator, dtype=torch.float64)
    again = differs([name]) or (measured, said)
    # the gradient of one table may be scaled down on purpose: everywhere by the same factor
    scaled = (
        len(wrong) == 1
        and again[0] != measured
        and abs(again[1] * measured - said * again[0]) <= 1e-6 * abs(measured * again[0])
    )
    message = (
        f"a small step of {name} moves the outputs with a slope of {show(measured)}, its gradient says {show(said)} "
        f"({len(wrong)} of {len(gradients)} parameters): one of the ways it acts carries no gradient"
    )
    evidence = {"names": list(wrong), "whole": False, "partly": True}
    return [Finding("parameters.detached", WARNING if scaled else ERROR, message, evidence)]


def slope(
    subject: Subject,
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    weights: Tensor,
    along: dict[str, tuple[Tensor, Tensor]],
    size: float,
) -> float:
    """How fast the weighted outputs grow along a direction, measured from both sides."""
    totals = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            kept = [parameter.clone() for parameter, _ in along.values()]
            for parameter, direction in along.values():
                parameter.add_(direction, alpha=sign * size)
        # with gradients, as training runs: without them a model may run other code
        totals.append(float((subject.forward(model, inputs).detach() * weights).sum()))
        with torch.no_grad():
            for (parameter, _), old in zip(along.values(), kept, strict=True):
                parameter.copy_(old)
    return (totals[0] - totals[1]) / (2 * size)
