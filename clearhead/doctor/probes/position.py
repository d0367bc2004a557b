"""Order matters, and positions behave as declared.

A single layer without positions cannot tell the order of the tokens before it: permuting them must move the output.
With absolute positions a constant input gives different outputs at different places. With relative ones (rotary,
ALiBi) it gives the same output everywhere, and its scores depend on the distance alone.
"""

import math

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, View, gap
from clearhead.doctor.watch import Watch

HIDDEN = 1e3  # so far below a token's score for itself are the keys that a mask hides
RELATIVE = ("rotary", "alibi", "relative")


def shallow(subject: Subject, view: View, cool: bool = False) -> nn.Module | None:
    make = subject.cool if cool else subject.model
    try:
        return make(layers=1)
    except NotArmed:
        return None if view.causal else make()


def order_matters(subject: Subject, view: View) -> Finding | None:
    """Permute what comes before the last token (for an encoder: everything) and look at the output."""
    model = shallow(subject, view)
    if model is None:
        raise NotArmed("build takes no layers: a deeper causal model tells order apart even without positions")
    tokens = subject.tokens(2, 9, seed=16)
    order = torch.tensor([3, 0, 6, 1, 7, 5, 2, 4, 8])
    before = subject.quiet(view, model, tokens)
    after = subject.quiet(view, model, tokens[:, order])
    if view.causal:
        size = gap(before[:, -1], after[:, -1])
    else:
        size = gap(before[:, order], after) if view.aligned else gap(before, after)
    if size > subject.tolerance(view):
        return None
    message = (
        f"permuting the {view.token}s before the last one leaves its output as it was (moved by {show(size)}): "
        "the model does not know their order. If that is meant, declare positions='none'"
    )
    return Finding("position.missing", ERROR, message, {"view": view.name})


def colliding(subject: Subject, view: View, model: nn.Module, tokens: Tensor, places: list[int]) -> list[int]:
    """The places where swapping a token with its neighbour moves no output that may look there."""
    before = subject.quiet(view, model, tokens)
    floor = subject.tolerance(view) / subject.spread(view) * float(before.double().std())
    same = []
    for place in places:
        order = list(range(tokens.size(1)))
        order[place], order[place + 1] = place + 1, place
        after = subject.quiet(view, model, tokens[:, order])
        # far tokens may share a bucket of distances, so ask whoever may look: those nearby tell them apart
        others = [i for i in range(tokens.size(1)) if i > place + 1 or (not view.causal and i < place)]
        size = gap(before[:, others], after[:, others]) if view.aligned else gap(before, after)
        if size <= floor:
            same.append(place)
    return same


def neighbours(subject: Subject, view: View) -> Finding | None:
    """Swap two neighbours before the last token, at each place: each swap must move the output."""
    model, window = shallow(subject, view), subject.spec.window
    if model is None or (window is not None and window < 4):
        return None
    tokens = subject.tokens(1, 11, seed=17)
    places = [place for place in range(9) if not torch.equal(tokens[:, place], tokens[:, place + 1])]
    same = colliding(subject, view, model, tokens, places)
    if same:  # where attention is saturated, a token may go unheard by chance
        same = colliding(subject, view, shallow(subject, view, cool=True) or model, tokens, same)
    if not same:
        return None
    message = f"swapping {view.token}s {same[0]} and {same[0] + 1} moves no later output: their positions collide"
    # beyond the window of the last output, the edge of another output's window tells some places apart
    inside = [place for place in places if window is None or place >= 11 - window]
    evidence = {"view": view.name, "places": same, "all": set(inside) <= set(same)}
    return Finding("position.collide", ERROR, message, evidence)


def constant_input(subject: Subject, view: View) -> Finding | None:
    """One token repeated: absolute positions show in the outputs, relative ones must not."""
    declared = subject.spec.positions
    if declared is None or not view.aligned:
        return None
    tokens = torch.full((1, 9), int(subject.tokens(1, 1)[0, 0]))
    out = subject.quiet(view, subject.model(), tokens)
    moved = [gap(out[:, i], out[:, i + 1]) for i in range(8)]
    tolerance = max(subject.tolerance(view), 1e-6 * subject.spread(view))
    if declared == "absolute" and min(moved) <= subject.tolerance(view):
        place = moved.index(min(moved))
        message = f"one token repeated gives the same output at positions {place} and {place + 1}"
        return Finding("position.constant", ERROR, message, {"view": view.name, "all": max(moved) <= tolerance})
    if declared in RELATIVE and max(moved) > tolerance and not first_is_special(subject, view, tokens):
        place = moved.index(max(moved))
        message = (
            f"one token repeated gives outputs that differ by {show(max(moved))} between positions {place} and "
            f"{place + 1}, though {declared} positions touch the scores only"
        )
        return Finding("position.not-relative", ERROR, message, {"view": view.name, "output": True})
    return None


def shifted(subject: Subject, view: View) -> Finding | None:
    """Past the reach of all windows, the tokens before change nothing; nor may it matter that they were there."""
    window, layers = subject.spec.window, subject.sizes.get("layers")
    if subject.spec.positions not in RELATIVE or not view.causal or window is None or subject.prefix:
        return None
    model: nn.Module | None = shallow(subject, view)
    depth = 1 if model is not None else layers
    model = model if model is not None else subject.model()
    if not isinstance(depth, int) or depth * (window - 1) > 60:
        return None
    tokens = subject.tokens(2, depth * (window - 1) + 4, seed=18)
    others = torch.cat([subject.other(tokens)[:, :3], tokens[:, 3:]], dim=1)
    whole = subject.quiet(view, model, tokens)[:, -1]
    tolerance = max(subject.tolerance(view), 1e-6 * subject.spread(view))
    if gap(whole, subject.quiet(view, model, others)[:, -1]) > tolerance:
        return None  # it sees them: the reach probe says so
    size = gap(whole, subject.quiet(view, model, tokens[:, 3:])[:, -1])
    if size <= tolerance:
        return None
    message = (
        f"without three {view.token}s that lie beyond every window the last output moves by {show(size)}: what "
        f"{subject.spec.positions} positions do depends on where a token stands, not on the distance alone"
    )
    evidence = {"view": view.name, "output": True, "shifted": True, "relative": size / subject.spread(view)}
    return Finding("position.not-relative", ERROR, message, evidence)


def first_is_special(subject: Subject, view: View, tokens: Tensor) -> bool:
    """Does the first token alone differ, before any attention? Some models mix neighbours' embeddings."""
    model = shallow(subject, view)
    if model is not None:
        out = subject.quiet(view, model, tokens)
        if gap(out[:, 1:-1], out[:, 2:]) <= max(subject.tolerance(view), 1e-6 * subject.spread(view)):
            return True
    with Watch() as watch:
        subject.quiet(view, subject.model(), tokens)
    length = tokens.size(1)
    values = [call.value for call in watch.seen.fused[:1]]
    for softmax in watch.seen.softmaxes[:1]:
        used = [product for product in watch.seen.products if product.order > softmax.order]
        values += [side for product in used[:1] for side in (product.right, product.left) if side.size(-2) == length]
    if not values:
        return False
    value = values[0].double()
    rounding = (1e-9 if values[0].dtype == torch.float64 else 1e-5) * float(value.std())
    first, others = gap(value[..., 0, :], value[..., 1, :]), gap(value[..., 1:-1, :], value[..., 2:, :])
    return first > 100 * max(rounding, others)


def distances(subject: Subject, view: View, length: int) -> tuple[Tensor, str] | None:
    """The first layer's scores of a constant input, against the diagonal: (H, S, S), and where they were computed."""
    tokens = torch.full((1, length), int(subject.tokens(1, 1)[0, 0]))
    with Watch() as watch:
        subject.quiet(view, subject.model(), tokens)
    for scores, where in watch.seen.maps(length, length):
        scores = scores.double()
        return scores - scores.diagonal(dim1=-2, dim2=-1).unsqueeze(-1), where
    return None


def by_distance(subject: Subject, view: View) -> list[Finding]:
    """Scores of a constant input depend on the distance alone; ALiBi's fall by its slopes."""
    declared = subject.spec.positions
    watched = distances(subject, view, 13) if declared in RELATIVE else None
    if watched is None:
        return []
    scores, where = watched
    window = subject.spec.window or 13
    worst = 0.0
    for distance in range(1, min(11, window)):
        # the first token may be treated apart: its scores are no evidence
        line = scores.diagonal(offset=-distance, dim1=-2, dim2=-1)[:, 1:]
        worst = max(worst, float((line - line[:, :1]).abs().max()))
    usual = float(scores.tril().clamp(min=-1e3).std())
    findings = []
    if worst > 1e-3 * max(usual, 1e-9):
        message = (
            f"scores of one token repeated differ by {show(worst)} at equal distance: what {declared} positions do "
            "depends on where a token stands, not on the distance alone"
        )
        evidence = {"view": view.name, "output": False}
        findings.append(Finding("position.not-relative", ERROR, message, evidence, (where,)))
    elif declared == "alibi":
        findings += slopes(scores, where)
    return findings


def spread_over_distances(apart: Tensor, sign: int, farthest: int) -> float:
    """How far the scores of one token at different distances are apart, on one side."""
    lines = [apart.diagonal(offset=sign * distance, dim1=-2, dim2=-1)[:, 1] for distance in range(1, farthest)]
    return float(torch.stack(lines).std(dim=0).max()) if len(lines) > 1 else 0.0


def some_layers(subject: Subject, view: View) -> Finding | None:
    """Where some attentions tell distances apart, those of the other layers do, too; leaving some out may be meant."""
    if subject.spec.positions not in RELATIVE:
        return None
    length, window = 13, subject.spec.window or 13
    tokens = torch.full((1, length), int(subject.tokens(1, 1)[0, 0]))
    with torch.enable_grad(), Watch() as watch:  # without gradients PyTorch's layers run as one operation
        subject.run(view, subject.model(), tokens)
    blind, seeing, one_sided = [], 0, list[str]()
    for scores, where in watch.seen.maps(length, length):
        apart = (scores - scores.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)).double()
        lines = [apart.diagonal(offset=-distance, dim1=-2, dim2=-1)[:, 1:] for distance in range(1, min(11, window))]
        reach = next((n for n, line in enumerate(lines) if float(line.abs().max()) > HIDDEN), len(lines)) + 1
        if reach < 3:
            continue  # a window too short to tell distances apart
        rounding = 1e-9 * max(1.0, float(scores.diagonal(dim1=-2, dim2=-1).abs().max()))
        if max(float(line.abs().max()) for line in lines[: reach - 1]) <= rounding:
            blind.append(where)
        else:
            seeing += 1
            sides = [spread_over_distances(apart, sign, reach) for sign in (-1, 1)]
            if not view.causal and min(sides) <= rounding < 1e-3 * max(sides):
                one_sided.append(where)
    if one_sided:
        message = (
            f"where {view.token}s on one side get another score at every distance, all those on the other side get the "
            "same: their order is not known"
        )
        return Finding("position.collide", ERROR, message, {"view": view.name, "side": True}, tuple(one_sided[:1]))
    if not blind or not seeing:
        return None
    message = (
        f"of {seeing + len(blind)} attentions over {view.token}s, {len(blind)} give one token repeated the same score "
        f"at every distance: {subject.spec.positions} positions do not reach them"
    )
    evidence = {"view": view.name, "blind": len(blind)}
    return Finding("position.layers", WARNING, message, evidence, tuple(dict.fromkeys(blind)))


def paper_slopes(heads: int) -> list[float]:
    """The slopes of the ALiBi paper, for any number of heads."""
    power = 2 ** math.floor(math.log2(heads))
    first = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    more = [2.0 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return first + more[: heads - power]


def slopes(scores: Tensor, where: str) -> list[Finding]:
    found = sorted((-scores.diagonal(offset=-1, dim1=-2, dim2=-1)[:, 1]).tolist())
    wanted = sorted(paper_slopes(len(found)))
    if any(slope <= 0 for slope in found):
        message = f"ALiBi must lower scores with the distance; here one moves by {show(-found[0])} a token"
        return [Finding("position.slopes", ERROR, message, {"sign": True}, (where,))]
    if max(abs(a - b) for a, b in zip(found, wanted, strict=True)) > 1e-3 * wanted[-1]:
        shown = ", ".join(show(slope) for slope in found)
        message = f"the ALiBi slopes of {len(found)} heads are {shown}; the paper's are {', '.join(map(show, wanted))}"
        return [Finding("position.slopes", WARNING, message, {"sign": False}, (where,))]
    return []


def run(subject: Subject) -> list[Finding]:
    findings: list[Finding | None] = []
    unasked: list[str] = []
    subject.require_exact()
    for view in subject.views:
        if subject.spec.positions != "none":
            try:
                missing = order_matters(subject, view)
                findings.append(missing or neighbours(subject, view))
            except NotArmed as reason:
                unasked.append(str(reason))
        findings.append(constant_input(subject, view))
        findings.append(some_layers(subject, view))
        if view.aligned:
            told = by_distance(subject, view)
            findings += told or [shifted(subject, view)]
    found = [finding for finding in findings if finding is not None]
    if unasked and not found:
        raise NotArmed(unasked[0])
    return found
