"""Tables end, kernels switch blocks, integers run out: the same properties at 127 to 129, 255 to 257, 511 to 513.

A prefix must give the same outputs, the future must stay unseen, the cache must agree with the full pass, and at
depth one neighbouring tokens must be told apart and reach the output, all the way to the end.
"""

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import CausalLM
from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.probes.cache import Decoding
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject, View, gap

LADDER = (127, 128, 129, 255, 256, 257, 511, 512, 513)


def longest(subject: Subject, view: View) -> int:
    """The longest input of the ladder that the model takes."""
    limit = min(subject.spec.length_limit or max(LADDER) + 7, int(subject.sizes.get("max_length", max(LADDER) + 7)))
    for length in sorted({520, 264, 136, 72, limit}, reverse=True):
        if length > limit:
            continue
        try:
            subject.quiet(view, subject.model(), subject.tokens(1, length))
            return length
        except Raised:
            continue
    raise NotArmed("the model takes no long inputs")


def causal(subject: Subject, view: View, tokens: Tensor, rungs: list[int]) -> list[Finding]:
    model, tolerance = subject.model(), subject.tolerance(view)
    whole = subject.quiet(view, model, tokens)
    found: dict[str, Finding] = {}
    for rung in rungs:
        size = gap(subject.quiet(view, model, tokens[:, :rung]), whole[:, :rung])
        if size > tolerance:
            message = f"{rung} {view.token}s alone and inside {tokens.size(1)} give outputs that differ by {show(size)}"
            found.setdefault("prefix", Finding("length.prefix", ERROR, message, {"rung": rung}))
        if rung % 2 or len(found) > 1:
            continue
        changed = tokens.clone()
        changed[:, rung] = subject.other(tokens)[:, rung]
        size = gap(subject.quiet(view, model, changed)[:, :rung], whole[:, :rung])
        if size > tolerance:
            message = f"in {tokens.size(1)} {view.token}s, changing number {rung} moves earlier outputs by {show(size)}"
            found.setdefault("future", Finding("length.future", ERROR, message, {"rung": rung}))
    return list(found.values())


def cached(subject: Subject, tokens: Tensor, rungs: list[int]) -> list[Finding]:
    if not isinstance(subject.spec, CausalLM) or subject.spec.cached is None:
        return []
    model, view = subject.model(), subject.views[0]
    whole = subject.quiet(view, model, tokens)
    for rung in rungs:
        decoding = Decoding(subject, model, (tokens,))
        decoding.feed(tokens[:, : rung - 1])
        steps = [decoding.feed(tokens[:, t : t + 1]) for t in (rung - 1, rung)]
        size = gap(torch.cat(steps, dim=1), whole[:, rung - 1 : rung + 1])
        if size > decoding.tolerance():
            message = f"after a prompt of {rung - 1} tokens cached outputs differ from the full pass by {show(size)}"
            return [Finding("length.cache", ERROR, message, {"rung": rung})]
    return []


def told_apart(subject: Subject, view: View, tokens: Tensor, rungs: list[int]) -> list[Finding]:
    """At depth one, change a token or swap two: a token after them must notice.

    Neighbours collide where positions are too coarse or clamped; tokens a power of two apart where they wrap around.
    """
    window = subject.spec.window
    if window is not None and window < 6:
        return []
    try:
        found = unheard(subject, view, subject.model(layers=1), tokens, rungs)
        # where attention is saturated, a token may go unheard by chance
        return unheard(subject, view, subject.cool(layers=1), tokens, rungs) if found else []
    except NotArmed:
        return []


def unheard(subject: Subject, view: View, model: nn.Module, tokens: Tensor, rungs: list[int]) -> list[Finding]:
    window = subject.spec.window
    whole, other = subject.quiet(view, model, tokens), subject.other(tokens)
    # the same row in company: what rounding does at this length
    company = subject.quiet(view, model, torch.cat([tokens, other]))[:1]
    rounding = 1e-13 if subject.dtype == torch.float64 else 1e-6
    floor = max(20 * gap(whole, company), rounding * float(whole.double().std()))

    def moved(changed: Tensor, after: int) -> float:
        last = after + 2 if view.aligned else -1
        return gap(subject.quiet(view, model, changed)[:, last], whole[:, last])

    findings: list[Finding] = []
    for rung in sorted({*rungs, tokens.size(1) - 6}):
        changed = tokens.clone()
        changed[:, rung] = other[:, rung]
        if moved(changed, rung) <= floor:
            message = f"changing {view.token} {rung} does not move the output of a token soon after it"
            findings.append(Finding("length.lost", ERROR, message, {"rung": rung, "view": view.name}))
            break
    pairs = [(rung, rung + 1) for rung in sorted({*rungs, tokens.size(1) - 6})]
    pairs += [(5, 5 + apart) for apart in (16, 32, 64, 128, 256) if 8 + apart < tokens.size(1)]
    for first, second in pairs:
        if subject.spec.positions == "none" or torch.equal(tokens[:, first], tokens[:, second]):
            continue
        if window is not None and second - first + 2 >= window:
            continue
        swapped = tokens.clone()
        swapped[:, first], swapped[:, second] = tokens[:, second], tokens[:, first]
        if moved(swapped, second) <= floor:
            message = f"swapping {view.token}s {first} and {second} moves no later output: their positions collide"
            evidence = {"rung": first, "apart": second - first, "view": view.name}
            # a token that moves nothing cannot be told apart either
            return findings or [Finding("length.collide", ERROR, message, evidence)]
    return findings


def refused(subject: Subject, view: View) -> list[Finding]:
    limit = subject.spec.length_limit
    if limit is None:
        return []
    try:
        subject.quiet(view, subject.model(), subject.tokens(1, limit + 1))
    except Raised:
        return []
    message = f"{limit + 1} {view.token}s went through, though {limit} is declared the limit"
    return [Finding("length.limit", ERROR, message, {"limit": limit})]


def run(subject: Subject) -> list[Finding]:
    subject.require_exact()
    findings: list[Finding] = []
    unasked: list[str] = []
    for view in subject.views:
        try:
            length = longest(subject, view)
        except NotArmed as reason:
            unasked.append(f"{view.name}: {reason}")
            continue
        tokens = subject.tokens(1, length, seed=200)
        rungs = [rung for rung in LADDER if rung + 3 < length]
        if view.causal:
            findings += causal(subject, view, tokens, rungs)
            findings += cached(subject, tokens, rungs[::3] + rungs[2::3])
        findings += told_apart(subject, view, tokens, rungs)
        findings += refused(subject, view)
    if unasked and not findings:
        raise NotArmed("; ".join(unasked))
    return findings
