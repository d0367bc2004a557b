"""What may be seen is seen: at depth one every allowed token moves the output, and none outside the window does.

A wrong view, a key that is overwritten or a window that never reaches the kernel leave holes or let too much in.
"""

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.influence import by_change
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, View

LONGEST = 700


def allowed(subject: Subject, view: View, length: int, depth: int | None) -> tuple[Tensor, Tensor]:
    """Two (S, S) masks: what one layer must let output i see of token j, and what `depth` layers may."""
    index = torch.arange(length)
    distance = index[:, None] - index[None, :]
    prefix, window = subject.prefix, subject.spec.window
    must = (distance >= 0) | ((index[:, None] < prefix) & (index[None, :] < prefix))
    if not view.causal:
        must = torch.ones(length, length, dtype=torch.bool)
    may = must.clone()
    if window is not None:
        must = must & (distance.abs() < window)
        may = may & (distance.abs() <= (depth or length) * (window - 1))
    return must, may


def shallow(subject: Subject) -> tuple[nn.Module, int | None]:
    try:
        return subject.model(layers=1), 1
    except NotArmed:
        return subject.model(), subject.sizes.get("layers")


def run(subject: Subject) -> list[Finding]:
    window = subject.spec.window
    if window is not None and window + 4 > LONGEST:
        raise NotArmed(f"the window of {window} is too long to look beyond; describe a model built with a small one")
    model, depth = shallow(subject)
    findings = []
    for view in subject.views:
        length = max(11, (window or 0) + 4)
        tokens = subject.tokens(2, length, seed=4)
        moved = by_change(subject, view, model, tokens)
        visible = moved > 2 * min(subject.noise(view), 1e-6 * subject.spread(view))
        if not view.aligned:
            visible, must = visible.any(dim=0, keepdim=True), torch.ones(1, length, dtype=torch.bool)
            may = must
        else:
            must, may = allowed(subject, view, length, depth)
            if depth == 1 and window is None and slides(must, visible):
                whole = by_change(subject, view, subject.model(), tokens)
                visible = whole > 2 * min(subject.noise(view), 1e-6 * subject.spread(view))
        findings += judge(subject, view, moved, visible, must, may)
    return findings


def slides(must: Tensor, visible: Tensor) -> bool:
    """Does one layer see all tokens up to some distance, and none beyond? Then others may see them: layers in turns."""
    index = torch.arange(len(must))
    distance = (index[:, None] - index[None, :]).abs()
    lost = must & ~visible
    nearest = int(distance[lost].min()) if lost.any() else 0
    return nearest > 1 and bool((lost == (must & (distance >= nearest))).all())


def judge(subject: Subject, view: View, moved: Tensor, visible: Tensor, must: Tensor, may: Tensor) -> list[Finding]:
    findings = []
    lost = (must & ~visible).nonzero().tolist()
    if lost:
        # the diagonal is no evidence: the residual carries a token to its own output
        pairs = [(i, j) for i, j in lost]
        i, j = max(pairs)
        share = len(pairs) / int(must.sum())
        ahead = all(j > i for i, j in pairs)
        what = f"output {i}" if view.aligned else "any output"
        message = (
            f"changing {view.token} {j} does not move {what}, though it may look there "
            f"({len(pairs)} of {int(must.sum())} such pairs are blind)"
        )
        evidence = {
            "view": view.name,
            "share": share,
            "only_ahead": ahead,
            "distances": sorted({i - j for i, j in pairs}),
            "columns": sorted({j for _, j in pairs}),
            "all": share == 1.0,
        }
        findings.append(Finding("reach.lost", ERROR, message, evidence))
    if view.aligned and subject.spec.window is not None:
        # what lies ahead of a causal position is the future probe's business
        beyond = ((visible & ~may).tril() if view.causal else visible & ~may).nonzero().tolist()
        if beyond:
            i, j = beyond[0]
            extra = max(abs(i - j) for i, j in beyond) - (subject.spec.window - 1)
            message = (
                f"output {i} sees {view.token} {j}, {abs(i - j)} tokens away, outside the declared window of "
                f"{subject.spec.window}: changing it moves the output by {show(float(moved[i, j]))}"
            )
            findings.append(Finding("reach.beyond", ERROR, message, {"extra": extra, "farthest": len(moved) - 1}))
    return findings
