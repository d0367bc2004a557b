"""What a sub-layer reads also goes around it, as it is: with its matrices at zero, the stream passes unchanged.

Every layer in turn is silenced. Around each sub-layer there is a sum that carries the tokens on; where it is missing,
nothing behind that layer knows the tokens any more. Where it starts from something older than what the sub-layer reads,
silencing the feed-forward layer takes away what attention found. Where it starts from the normalised input in one
sub-layer and not in the other, some gains of a silenced layer matter and others do not.
"""

from collections.abc import Iterable

import torch
from torch import nn

from clearhead.doctor.activated import after_activation
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.layered import Layers, numbered, parts, silenced, stacks
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, View, gap


def tokens_arrive(subject: Subject, view: View, model: nn.Module, names: Iterable[str]) -> bool:
    """With these matrices at zero, do other tokens still give other outputs?"""
    tokens = subject.tokens(2, 7, seed=63)
    with silenced(model, names, stacks(subject)):
        moved = gap(subject.quiet(view, model, tokens), subject.quiet(view, model, subject.other(tokens)))
    return moved > subject.tolerance(view)


def layers_of(subject: Subject) -> tuple[nn.Module, Layers, Layers]:
    """A deep model, and the matrices and the gains of each of its layers."""
    if "layers" not in subject.names:
        raise NotArmed("build takes no layers")
    count = int(subject.sizes.get("layers", 2))
    deep, shallow = subject.model(layers=count + 1), subject.raw(layers=count)
    stacked = stacks(subject)
    known = {part.name for part in parts(shallow, stacked)}
    matrices = numbered([part.name for part in parts(deep, stacked) if part.view().dim() > 1], known)
    if not matrices:
        raise NotArmed("a deeper build has no numbered layers of its own")
    built = {part.name: part.view() for part in parts(subject.raw(layers=count + 1), stacked)}
    gains = {name: p.numel() for name, p in built.items() if p.dim() == 1 and bool((p == 1).all())}
    # those of queries and keys are narrower than the stream
    width = subject.sizes.get("width", max(gains.values(), default=0))
    return deep, matrices, numbered([name for name, size in gains.items() if size == width], known)


def missing(subject: Subject, view: View, model: nn.Module, layers: Layers) -> Finding | None:
    numbers = sorted({number for _, number in layers})
    for number in numbers:
        names = [name for (_, other), found in layers.items() if other == number for name in found]
        if tokens_arrive(subject, view, model, names):
            continue
        alone = next((name for name in names if not tokens_arrive(subject, view, model, [name])), None)
        what = alone or f"the matrices of layer {number} ({names[0]} among them)"
        message = (
            f"with {what} at zero, no {view.token} reaches any output: what the sub-layer reads does not go around it"
        )
        evidence = {"name": alone or "", "layer": number, "view": view.name}
        return Finding("residual.missing", ERROR, message, evidence)
    return None


def around_feed_forward(subject: Subject) -> Finding | None:
    """With the feed-forward layer silenced, what attention found still reaches the output of a single layer."""
    model = subject.model(layers=1)
    names = after_activation(model, lambda: subject.forward(model, subject.inputs(2, 7, seed=63)))
    for view in subject.views:
        first, second = subject.tokens(2, 7, seed=63), subject.tokens(2, 7, seed=63)
        first[:, 0] = subject.other(first)[:, 0]

        def heard(view: View = view, first: torch.Tensor = first, second: torch.Tensor = second) -> float:
            out = [subject.quiet(view, model, tokens) for tokens in (first, second)]
            return gap(out[0][:, -1], out[1][:, -1])

        if not names or heard() <= subject.tolerance(view) or not tokens_arrive(subject, view, model, names):
            continue
        with silenced(model, names):
            left = heard()
        if left <= subject.tolerance(view):
            message = (
                f"with {', '.join(names[:2])} at zero, no output knows {view.token} 0 any more, though attention looks "
                "there: what attention found does not go around the feed-forward layer"
            )
            return Finding("residual.missing", ERROR, message, {"name": names[0], "layer": 0, "view": view.name})
    return None


def normed(subject: Subject, model: nn.Module, layers: Layers, gains: Layers) -> Finding | None:
    """Where the maps of a layer are silent, either all of its gains matter (norms after the sum) or none (before)."""
    for place in [place for place in gains if place[1] in (0, max(number for _, number in gains))]:
        parameters = {part.name: part.view() for part in parts(model, stacks(subject))}
        order = [name for name in parameters if name in gains[place]]
        moved: dict[str, float] = {}
        with silenced(model, layers.get(place, []), stacks(subject)):
            if not layers.get(place) or not all(tokens_arrive(subject, view, model, []) for view in subject.views):
                continue
            for name in order:
                moved[name] = max(turned(subject, view, model, parameters[name]) for view in subject.views)
        tolerance = max(subject.tolerance(view) for view in subject.views)
        loud = [name for name in order if moved[name] > tolerance]
        if not loud or len(loud) == len(order):
            continue
        quiet = next(name for name in order if name not in loud)
        message = (
            f"with the matrices of its layer at zero, {loud[0]} still moves the output (by {show(moved[loud[0]])}) and "
            f"{quiet} does not: one sub-layer carries on its normalised input, the other its input"
        )
        # a norm of its own may end a layer
        severity = WARNING if loud == order[-1:] else ERROR
        return Finding("residual.normed", severity, message, {"name": loud[0], "layer": place[1]})
    return None


def turned(subject: Subject, view: View, model: nn.Module, gain: torch.Tensor) -> float:
    """How far other gains move the output."""
    tokens, kept = subject.tokens(2, 7, seed=63), gain.detach().clone()
    before = subject.quiet(view, model, tokens)
    with torch.no_grad():
        gain.mul_(torch.linspace(0.5, 1.5, gain.numel()).to(gain.dtype))
        after = subject.quiet(view, model, tokens)
        gain.copy_(kept)
    return gap(before, after)


def run(subject: Subject) -> list[Finding]:
    subject.require_exact()
    model, layers, gains = layers_of(subject)
    for view in subject.views:
        if not tokens_arrive(subject, view, model, []):
            continue  # the reach probe says so
        found = missing(subject, view, model, layers)
        if found is not None:
            return [found]
    found = around_feed_forward(subject) or normed(subject, model, layers, gains)
    return [found] if found is not None else []
