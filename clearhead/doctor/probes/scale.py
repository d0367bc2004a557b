"""Scores keep their size when heads get wider.

A dot product of d terms grows with √d; dividing by √d takes that out again. So the spread of the scores, at equal
model width, must not depend on how many heads share it. A missing scale, a constant and √d_model all show.
"""

import math
from typing import Any

import torch
from torch import Tensor

from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject
from clearhead.doctor.watch import Watch

WIDTH, FEW, MANY = 64, 2, 8


def spread_of_scores(subject: Subject, heads: int, seed: int) -> tuple[float, int, str, int]:
    """The spread of the first attention's scores over tokens, the head width, the line, and how many scores there are.

    Two inputs are subtracted, so that what does not depend on the tokens (masks, ALiBi) drops out.
    """
    overrides: dict[str, Any] = {"width": WIDTH, "heads": heads}
    overrides |= {"kv_heads": heads} if "kv_heads" in subject.names else {}
    model = subject.raw(seed, **overrides)
    view = subject.views[0]
    found: list[list[tuple[Tensor, str]]] = []
    for number in (0, 1):
        with Watch() as watch:
            subject.quiet(view, model, subject.tokens(4, 13, seed=30 + 2 * seed + number))
        found.append(watch.seen.scores())
    for (first, where), (second, _) in zip(*found, strict=True):
        kept = (first > -1e3) & (second > -1e3)
        spread = float((first - second)[kept].double().std())
        widths = [call.query.size(-1) for call in watch.seen.fused] + [
            product.left.size(-1) for product in watch.seen.products if product.out.numel() == first.numel()
        ]
        # an attention over the source, which is held still, does not move
        if spread > 1e-12 and math.isfinite(spread) and widths:
            return spread, widths[0], where, first.numel()
    raise NotArmed("no attention was seen whose untrained scores depend on the tokens")


def run(subject: Subject) -> list[Finding]:
    if not subject.spec.scaled:
        raise NotArmed("declared scaled=False")
    if "heads" not in subject.names or "width" not in subject.names:
        raise NotArmed("build takes no heads and width")
    slopes = []
    for seed in range(4):
        wide, wide_width, where, few = spread_of_scores(subject, FEW, seed)
        narrow, narrow_width, _, many = spread_of_scores(subject, MANY, seed)
        if wide_width == narrow_width and few == many:
            message = f"built with {FEW} heads and with {MANY}, attention is the same: heads of width {wide_width}"
            return [Finding("scale.heads", WARNING, message, {"width": wide_width}, (where,))]
        if wide_width == narrow_width:
            raise NotArmed("the head width does not follow from width and heads")
        slopes.append(math.log(wide / narrow) / math.log(wide_width / narrow_width))
    power = float(torch.tensor(slopes).mean())
    if abs(power) < 0.25:
        return []
    message = (
        f"heads of width {wide_width} have scores {show((wide_width / narrow_width) ** power)} times as large as heads "
        f"of width {narrow_width}: they grow with d^{power:.2f}, where dividing by √d keeps them level"
    )
    severity = ERROR if power > 0 else WARNING
    return [Finding("scale.grows", severity, message, {"power": power}, (where,))]
