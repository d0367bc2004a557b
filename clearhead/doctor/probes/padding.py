"""Padding changes nothing: not its content, not its amount, on neither side, in no row.

For a causal model only padding on the left can be seen, so it is asked there too. Content that matters means that
the mask is not applied; an amount that matters on the left alone means that positions count the padding.
"""

import torch
from torch import Tensor

from clearhead.doctor.describe import CausalLM
from clearhead.doctor.finding import ERROR, NOTE, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.probes.attention import changed_weights
from clearhead.doctor.subject import Subject, View, gap
from clearhead.doctor.views import TARGET_LENGTH
from clearhead.doctor.watch import Watch

LENGTHS = (7, 4, 6)  # real tokens in each row


def pad(subject: Subject, rows: list[Tensor], total: int, left: bool, content: int) -> tuple[Tensor, Tensor]:
    """Rows of different lengths in one batch, and where its real tokens are."""
    tokens = torch.full((len(rows), total), content)
    real = torch.zeros(len(rows), total, dtype=torch.bool)
    for number, row in enumerate(rows):
        start = total - len(row) if left else 0
        tokens[number, start : start + len(row)] = row
        real[number, start : start + len(row)] = True
    return tokens, real


def outputs_of_real(view: View, out: Tensor, real: Tensor) -> list[Tensor]:
    return [out[i, real[i]] if view.aligned else out[i] for i in range(out.size(0))]


def worst(first: list[Tensor], second: list[Tensor]) -> float:
    return max(gap(a, b) for a, b in zip(first, second, strict=True))


def examine(subject: Subject, view: View) -> list[Finding]:
    model, tolerance, spread = subject.model(), subject.tolerance(view), subject.spread(view)
    rows = [subject.tokens(1, length, seed=20 + number)[0] for number, length in enumerate(LENGTHS)]
    alone = [
        outputs_of_real(view, subject.quiet(view, model, row[None]), torch.ones(1, len(row), dtype=torch.bool))[0]
        for row in rows
    ]
    pad_token = subject.source_pad if view.name == "source" else subject.pad
    first = pad_token if pad_token is not None else 0
    second = int(subject.tokens(1, 1, seed=33)[0, 0])

    def padded(left: bool, total: int, content: int) -> list[Tensor]:
        tokens, real = pad(subject, rows, total, left, content)
        return outputs_of_real(view, subject.quiet(view, model, tokens, real), real)

    sizes: dict[str, float] = {}
    for side in ("right", "left"):
        left = side == "left"
        sizes[f"{side} content"] = worst(padded(left, 9, first), padded(left, 9, second))
        sizes[f"{side} amount"] = worst(padded(left, 9, first), padded(left, 12, first))
        sizes[f"{side} alone"] = worst(padded(left, 9, first), alone)
    # three rows of three: where a mask of rows is taken for a mask of positions, shapes agree by accident
    short = [row[:length] for row, length in zip(rows, (3, 1, 2), strict=True)]
    square = [pad(subject, short, 3, False, content) for content in (first, second)]
    both = [outputs_of_real(view, subject.quiet(view, model, tokens, real), real) for tokens, real in square]
    sizes["square content"] = worst(both[0], both[1])
    tokens, real = pad(subject, rows, 9, False, first)
    sizes["full mask"] = gap(
        subject.quiet(view, model, tokens, torch.ones_like(real)), subject.quiet(view, model, tokens)
    )
    with Watch(real) as watch:
        subject.quiet(view, model, tokens, real)
    found = judge(subject, view, sizes, tolerance, spread, watch.seen.touched or subject.spec.pad_by_id)
    for finding in found:
        # rows that no longer sum to one were masked after the softmax
        finding.evidence["after_softmax"] = bool(changed_weights(watch.seen))
        finding.evidence["masks"] = masks(subject, view, rows, first)
        turned = padded_in_turn(subject, view, rows[::-1], first)[::-1]
        finding.evidence["coupled"] = worst(padded_in_turn(subject, view, rows, first), turned) > tolerance
    return found


def padded_in_turn(subject: Subject, view: View, rows: list[Tensor], content: int) -> list[Tensor]:
    """The outputs of the real tokens of these rows, padded on the right, in their order."""
    tokens, real = pad(subject, rows, 9, False, content)
    return outputs_of_real(view, subject.quiet(view, subject.model(), tokens, real), real)


def masks(subject: Subject, view: View, rows: list[Tensor], content: int) -> dict[str, str]:
    """What the attentions over padded tokens hide: of a source those of the encoder and those of the target."""
    tokens, real = pad(subject, rows, 9, view.causal, content)
    with torch.enable_grad(), Watch() as watch:  # without gradients PyTorch's layers run as one operation
        subject.run(view, subject.model(), tokens, real)
    found = {"self": worst_of([hidden_by(hidden, real, real, view.causal) for hidden in watch.seen.hidden(9, 9)])}
    if not view.aligned:
        targets = torch.ones(real.size(0), TARGET_LENGTH, dtype=torch.bool)
        over = watch.seen.hidden(TARGET_LENGTH, 9)
        found["cross"] = worst_of([hidden_by(hidden, targets, real, False) for hidden in over])
    return found


def worst_of(states: list[str]) -> str:
    order = ("inverted", "queries", "rows", "open", "closed")
    return next((state for state in order if state in states), "unseen")


def hidden_by(hidden: Tensor, queries: Tensor, keys: Tensor, causal: bool) -> str:
    """What one mask hides: real tokens, queries instead of keys, the padding of other rows, nothing, or padding."""
    count = queries.size(0)
    hidden = hidden.reshape(count, -1, *hidden.shape[-2:]) if hidden.size(0) % count == 0 else hidden[None]
    uneven = hidden.size(0) == count and bool((hidden.any(dim=1) != hidden.all(dim=1)).any())  # heads differ
    hidden = hidden.all(dim=1).expand(count, -1, -1)
    within = torch.ones(hidden.shape[-2:], dtype=torch.bool)
    if causal:
        within = within.tril(-1)
    allowed = queries[:, :, None] & keys[:, None, :] & within
    padding = queries[:, :, None] & ~keys[:, None, :] & within
    if 2 * int((hidden & allowed).sum()) > int(allowed.sum()):
        return "inverted"
    if not bool((~hidden & padding).any()):
        return "closed"
    unasked = (~queries)[:, :, None] & within
    if bool(unasked.any()) and bool(hidden[unasked].all()):
        return "queries"
    same = bool((hidden == hidden[:1]).all()) and bool((hidden & within).any())
    return "rows" if uneven or same else "open"


def judge(
    subject: Subject, view: View, sizes: dict[str, float], tolerance: float, spread: float, touched: bool
) -> list[Finding]:
    moved = {name for name, size in sizes.items() if size > tolerance}
    noise = f"noise {show(subject.noise(view))}"
    largest = max((sizes[name] for name in moved), default=0.0) / spread
    evidence = {"view": view.name, "moved": sorted(moved), "relative": largest, "touched": touched}
    if not touched:
        message = (
            f"the padding mask given to forward for {view.name} enters no operation: forward in the description "
            "does not pass it on, or the model takes it and ignores it"
        )
        return [Finding("padding.unused", ERROR, message, evidence)]
    content = sorted(name for name in moved if name.endswith("content"))
    if content:
        message = (
            f"what stands in the padding of {view.name} ({content[0].split()[0]}) moves the outputs of real tokens "
            f"by {show(sizes[content[0]])}; {noise}"
        )
        return [Finding("padding.content", ERROR, message, evidence)]
    findings = []
    right = [name for name in ("right alone", "right amount", "full mask") if name in moved]
    if right:
        message = {
            "right alone": "rows padded on the right give other outputs than alone",
            "right amount": "more padding on the right moves the outputs of real tokens",
            "full mask": "a mask that hides nothing changes the outputs",
        }[right[0]] + f" ({view.name}: by {show(sizes[right[0]])}; {noise})"
        findings.append(Finding("padding.right", ERROR, message, evidence))
    left = [name for name in ("left alone", "left amount") if name in moved]
    relative = subject.spec.positions in ("rotary", "alibi", "relative", "none")
    # nobody pads the target of a translation on the left, and an encoder's positions may count from the left edge
    if left and not right and (isinstance(subject.spec, CausalLM) or relative):
        message = (
            f"padding on the left moves the outputs of real {view.name} by {show(sizes[left[0]])}, though not by its "
            f"content: positions count the padding; {noise}"
        )
        # with absolute positions it is a convention to pad on the right only, unless the description says otherwise
        severity = ERROR if relative or subject.spec.left_padded else NOTE
        findings.append(Finding("padding.left", severity, message, evidence))
    return findings


def run(subject: Subject) -> list[Finding]:
    views = [view for view in subject.views if view.padded]
    if not views:
        raise NotArmed("forward takes no padding mask")
    subject.require_exact()
    return [finding for view in views for finding in examine(subject, view)]
