"""Padding where it is easily forgotten: next to the causal mask, in training mode, in generation, in the cache.

A batch of prompts of different lengths must give what each prompt alone gives. Whether generate() and the cache are
asked at all is measured: where a full pass over padded tokens needs a mask that they do not take, they cannot know.
"""

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import CausalLM, EncoderDecoder
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.generating import Choices, continued, lively, unlike
from clearhead.doctor.padded_cache import NEW, TOTAL, cached, padding_token, remembered, rows_of
from clearhead.doctor.probes import show
from clearhead.doctor.probes.padding import outputs_of_real, pad, worst
from clearhead.doctor.subject import Subject, View, gap, parameters_of


def content(subject: Subject, view: View, model: nn.Module, path: str = "") -> float:
    """How far other tokens in the padding move the outputs of real ones; the model is asked as it is."""
    first = padding_token(subject, view) or 0
    second = int(subject.tokens(1, 1, seed=33)[0, 0])
    out = []
    for filling in (first, second):
        # the tokens of a causal model see no padding on their right
        tokens, real = pad(subject, rows_of(subject), TOTAL, view.causal, filling)
        torch.manual_seed(0)
        out.append(outputs_of_real(view, subject.quiet(view, model, tokens, real, path), real))
    return worst(out[0], out[1])


def future(subject: Subject, view: View) -> list[Finding]:
    """With a padding mask given, the future stays as hidden as without one."""
    model, tolerance = subject.model(), subject.tolerance(view)
    tokens, other = subject.tokens(2, TOTAL, seed=75), subject.other(subject.tokens(2, TOTAL, seed=75))
    start = max(1, subject.prefix)
    masks = {"none": None, "right": torch.ones_like(tokens, dtype=torch.bool)}
    masks["right"][1, -2:] = False  # type: ignore[index]
    moved: dict[str, tuple[float, int]] = {}
    for side, real in masks.items():
        before = subject.quiet(view, model, tokens, real)
        moved[side] = (0.0, 0)
        for j in (TOTAL - 1, TOTAL // 2):
            changed = tokens.clone()
            changed[0, j:] = other[0, j:]
            if j >= start:
                after = subject.quiet(view, model, changed, real)
                moved[side] = max(moved[side], (gap(before[:1, :j], after[:1, :j]), j))
    if moved["none"][0] > tolerance or moved["right"][0] <= tolerance:
        return []  # visible without a mask too: the future probe says so
    size, j = moved["right"]
    message = (
        f"with a padding mask given, changing the {view.token}s from {j} on moves earlier outputs by {show(size)}; "
        "without one it does not"
    )
    return [Finding("padded.future", ERROR, message, {"view": view.name})]


def in_training(subject: Subject, view: View) -> list[Finding]:
    """What stands in the padding matters in no mode and on no path, if it does not in evaluation."""
    tolerance = subject.tolerance(view)
    if content(subject, view, subject.model()) > tolerance:
        return []  # the padding probe says so
    still = subject.without_dropout().train()
    size = content(subject, view, still)
    if size > tolerance and not subject.spec.coupled:
        message = f"in training mode, what stands in the padding of {view.name} moves real outputs by {show(size)}"
        return [Finding("padded.training", ERROR, f"{message}; in evaluation mode it does not", {"view": view.name})]
    for path, forward in subject.spec.paths.items():
        takes = parameters_of(forward) >= parameters_of(subject.spec.forward)
        if takes and (size := content(subject, view, subject.model(), path)) > tolerance:
            message = f"on the path {path!r}, what stands in the padding of {view.name} moves real outputs"
            return [Finding("padded.path", ERROR, f"{message} by {show(size)}", {"view": view.name, "path": path})]
    return []


def swapped(subject: Subject) -> list[Finding]:
    """The masks of source and target belong to their own side; with equal lengths a mix-up is not even noticed."""
    model, view = subject.model(), subject.views[1]
    source, target = subject.tokens(2, 7, seed=76), subject.tokens(2, 7, seed=77)
    refused = of_other_lengths(subject, model, source, target)
    if refused:
        return refused
    other = source.clone()
    other[:, 5:] = subject.other(source)[:, 5:]
    real = torch.ones_like(source, dtype=torch.bool)
    short = real.clone()
    short[:, 5:] = False

    def moves(*masks: Tensor) -> float:
        return gap(subject.whole(model, (source, target, *masks)), subject.whole(model, (other, target, *masks)))

    if moves(short, real) <= subject.tolerance(view) or moves(real, short) > subject.tolerance(view):
        return []
    message = (
        "with source and target of length 7, hiding two source tokens hides nothing, but hiding two target tokens "
        "hides the source's: the masks are swapped"
    )
    return [Finding("padded.swapped", ERROR, message, {"raised": False})]


def of_other_lengths(subject: Subject, model: nn.Module, source: Tensor, target: Tensor) -> list[Finding]:
    """With masks, a source longer than the target goes through as well as one of its length."""

    def raised(length: int) -> str:
        given = (source[:, :length].contiguous(), target)
        try:
            subject.whole(model, (*given, *(torch.ones_like(x, dtype=torch.bool) for x in given)))
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return ""

    reason = raised(5)
    if not reason or raised(7):
        return []
    message = (
        f"with masks, a source of 7 and a target of 7 tokens go through, a source of 5 raises {reason}: a mask meets "
        "the other side's length"
    )
    return [Finding("padded.swapped", ERROR, message, {"raised": True})]


def hides_by_itself(subject: Subject, view: View, left: bool) -> bool:
    """Does a full pass over padded tokens, without any mask, give what each row alone gives?"""
    filling, rows = padding_token(subject, view), rows_of(subject)
    assert filling is not None
    tokens, real = pad(subject, rows, TOTAL, left, filling)
    together = outputs_of_real(view, subject.quiet(view, subject.model(), tokens), real)
    alone = [subject.quiet(view, subject.model(), row[None])[0] for row in rows]
    return worst(together, alone) <= subject.tolerance(view)


def knows_by_itself(subject: Subject) -> bool:
    """Is the model given tokens and nothing else, so that the masks are its own?"""
    given: list[int] = []
    inputs = subject.inputs(2, 7, seed=80)

    def note(module: nn.Module, args: tuple[object, ...], named: dict[str, object]) -> None:
        given.append(sum(isinstance(x, Tensor) for x in (*args, *named.values())))

    hook = subject.model().register_forward_pre_hook(note, with_kwargs=True)
    try:
        subject.whole(subject.model(), inputs)
    finally:
        hook.remove()
    return given == [len(inputs)]


def takes_mask(subject: Subject, view: View, left: bool) -> bool:
    """Does a full pass with a mask give what each row alone gives, and does generate() take that mask too?"""
    wanted = 5 if isinstance(subject.spec, EncoderDecoder) else 4
    generate = getattr(subject.spec, "generate", None)
    if generate is None or parameters_of(generate) < wanted or not view.padded:
        return False
    rows = rows_of(subject)
    tokens, real = pad(subject, rows, TOTAL, left, padding_token(subject, view) or 0)
    together = outputs_of_real(view, subject.quiet(view, subject.model(), tokens, real), real)
    alone = [subject.quiet(view, subject.model(), row[None])[0] for row in rows]
    return worst(together, alone) <= subject.tolerance(view)


def both_ways(
    subject: Subject, model: nn.Module, view: View, left: bool, masked: bool, seed: int = 74
) -> tuple[list[Tensor], Tensor, list[Tensor], bool]:
    """Rows, their continuations in a padded batch and alone, and whether the first choices were from other logits."""
    rows = rows_of(subject, seed)
    tokens, real = pad(subject, rows, TOTAL, left, padding_token(subject, view) or 0)
    start = starts(subject, rows)
    masks = (real,) if masked else ()
    alone, differs = [], False
    with torch.no_grad():
        with Choices(len(rows), subject.vocab) as choices:
            together = continued(subject, model, (tokens, *start), NEW, *masks)[:, -NEW:]
        first = choices.logits(NEW)
        for number, row in enumerate(rows):
            ones = (torch.ones(1, len(row), dtype=torch.bool),) if masked else ()
            given = (row[None], *(x[number : number + 1] for x in start))
            with Choices(1, subject.vocab) as choices:
                alone.append(continued(subject, model, given, NEW, *ones)[:, -NEW:])
            own = choices.logits(NEW)
            if first is not None and own is not None:
                differs = differs or unlike(first[0][number], own[0][0]) > (1e-6 if subject.exact() else 1.0)
    return rows, together, alone, differs


def starts(subject: Subject, rows: list[Tensor]) -> tuple[Tensor, ...]:
    return (subject.tokens(len(rows), 1, seed=78),) if isinstance(subject.spec, EncoderDecoder) else ()


def generated(subject: Subject, view: View, left: bool, masked: bool, severity: str) -> list[Finding]:
    """A padded batch is continued as each of its rows alone."""
    model = subject.fresh()
    rows, together, alone, differs = both_ways(subject, model, view, left, masked)
    wrong = [number for number, one in enumerate(alone) if not torch.equal(one[0], together[number])]
    seed = 0
    while differs and not wrong and seed < 24:  # the same tokens by luck: other weights and prompts have less of it
        seed += 1
        rows, together, alone, _ = both_ways(subject, lively(subject, seed), view, left, masked, 74 + seed)
        wrong = [number for number, one in enumerate(alone) if not torch.equal(one[0], together[number])]
    if not wrong:
        return unmasked(subject, model, view, rows, starts(subject, rows), alone) if masked else []
    which, side = wrong[0], "left" if left else "right"
    message = (
        f"generate() continues {rows[which].tolist()} with {alone[which][0].tolist()} alone, and with "
        f"{together[which].tolist()} in a batch where it is padded on the {side}; a full pass does not mind"
    )
    return [Finding("padded.generate", severity, message, {"view": view.name, "left": left, "rows": wrong})]


def unmasked(
    subject: Subject, model: nn.Module, view: View, rows: list[Tensor], start: tuple[Tensor, ...], masked: list[Tensor]
) -> list[Finding]:
    """A mask that hides nothing changes nothing of a continuation."""
    for number, row in enumerate(rows):
        given = (row[None], *(x[number : number + 1] for x in start))
        try:
            with torch.no_grad():
                plain = continued(subject, model, given, NEW)[:, -NEW:]
        except Exception:
            return []  # it wants a mask
        if not torch.equal(plain, masked[number]):
            message = (
                f"generate() continues {row.tolist()} with {plain[0].tolist()}, and with {masked[number][0].tolist()} "
                "where a mask says that all of it is real"
            )
            evidence = {"view": view.name, "left": False, "rows": [number], "mask": True}
            return [Finding("padded.generate", ERROR, message, evidence)]
    return []


def decoding(subject: Subject) -> tuple[list[Finding], list[str]]:
    """Generation and cache over padded inputs, as far as they can know of the padding; and why not, where not."""
    spec = subject.spec
    view = subject.views[-1]  # of a translation, the source
    left = not isinstance(spec, EncoderDecoder)
    findings: list[Finding] = []
    by_id = spec.pad is not None and hides_by_itself(subject, view, left)
    with_mask = takes_mask(subject, view, left)
    if not by_id and not with_mask:
        return [], ["generate() and cached() take no mask, and forward does not know padding by its token"]
    # where the description makes the masks of a full pass, it may have left them out elsewhere
    severity = ERROR if by_id and knows_by_itself(subject) else WARNING
    try:
        if getattr(spec, "generate", None) is not None:
            findings += generated(subject, view, left, with_mask, ERROR if with_mask else severity)
        if by_id and getattr(spec, "cached", None) is not None:
            findings += cached(subject, view, left, severity)
            if isinstance(spec, EncoderDecoder):
                findings += remembered(subject)
    except NotArmed as reason:
        return findings, [str(reason)]
    return findings, []


def run(subject: Subject) -> list[Finding]:
    subject.require_exact()
    views = [view for view in subject.views if view.padded]
    findings: list[Finding] = []
    reasons = [] if views else ["forward takes no padding mask"]
    masked = isinstance(subject.spec, EncoderDecoder) and len(views) == 2 and not subject.spec.pad_by_id
    if masked and (findings := swapped(subject)):
        return findings  # with other lengths the model would only raise
    for view in views:
        findings += (future(subject, view) if view.causal else []) + in_training(subject, view)
    if isinstance(subject.spec, CausalLM | EncoderDecoder) and (subject.spec.generate or subject.spec.cached):
        found, why = decoding(subject)
        findings += found
        reasons += why
    elif not views:
        reasons.append("neither generate() nor cached() is described")
    if not views and not findings and len(reasons) > 1:
        raise NotArmed("; ".join(reasons))
    return findings
