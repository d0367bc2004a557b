"""Padding and the cache: a padded prompt leaves in it what the prompt alone leaves, whatever happens to its rows."""

from typing import Any

import torch
from torch import Tensor

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import WARNING, Finding
from clearhead.doctor.probes import show
from clearhead.doctor.probes.cache import Decoding
from clearhead.doctor.probes.padding import LENGTHS, pad, worst
from clearhead.doctor.subject import Subject, View, gap

TOTAL = 9
NEW = 6


def padding_token(subject: Subject, view: View) -> int | None:
    """The padding token; source and target may each have their own."""
    pad: Any = subject.spec.pad
    return pad[0 if view.name == "source" else 1] if isinstance(pad, tuple) else pad


def rows_of(subject: Subject, seed: int = 74) -> list[Tensor]:
    return [subject.tokens(1, length, seed=seed + number)[0] for number, length in enumerate(LENGTHS)]


def cached(subject: Subject, view: View, left: bool, severity: str) -> list[Finding]:
    """The cache of a padded prompt gives what the prompt alone gives."""
    rows, model = rows_of(subject), subject.model()
    tokens, _ = pad(subject, rows, TOTAL, left, padding_token(subject, view) or 0)
    new = subject.tokens(len(rows), NEW, seed=79)

    def fed(given: Tensor, prompts: Tensor | None, after: Tensor) -> tuple[Tensor, float]:
        decoding = Decoding(subject, model, (given, after))
        if prompts is not None:
            decoding.feed(prompts)
        steps = [decoding.feed(after[:, t : t + 1].contiguous())[:, -1] for t in range(after.size(1))]
        return torch.stack(steps, dim=1), decoding.tolerance()

    translating = isinstance(subject.spec, EncoderDecoder)
    together, tolerance = fed(tokens, None if translating else tokens, new)
    alone = [fed(row[None], None if translating else row[None], new[i : i + 1])[0][0] for i, row in enumerate(rows)]
    size = worst(list(together), alone)
    if size <= tolerance:
        return dealt_anew(subject, view, left, severity) if not translating else []
    message = (
        f"decoding with the cache after {'sources' if translating else 'prompts'} padded on the "
        f"{'left' if left else 'right'} differs by {show(size)} from each row alone; a full pass does not"
    )
    return [Finding("padded.cache", severity, message, {"view": view.name, "left": left})]


def dealt_anew(subject: Subject, view: View, left: bool, severity: str) -> list[Finding]:
    """Rows of different lengths dealt anew, as in a beam search, take along what was padding."""
    if getattr(subject.spec, "reorder", None) is None:
        return []
    rows, order = rows_of(subject), torch.tensor([1, 0, 0])
    tokens, _ = pad(subject, rows, TOTAL, left, padding_token(subject, view) or 0)
    after = subject.tokens(len(rows), 2, seed=82)

    def fed(prompts: list[Tensor], dealt: Tensor | None) -> tuple[Tensor, float]:
        padded = torch.stack(prompts)
        decoding = Decoding(subject, subject.model(), (padded, after))
        decoding.feed(padded)
        if dealt is not None:
            decoding.reorder(dealt)
        steps = [decoding.feed(after[:, t : t + 1].contiguous())[:, -1] for t in range(after.size(1))]
        return torch.stack(steps, dim=1), decoding.tolerance()

    plain, tolerance = fed([tokens[row] for row in order.tolist()], None)
    size = gap(fed(list(tokens), order)[0], plain)
    if size <= tolerance:
        return []
    message = (
        f"after prompts padded on the {'left' if left else 'right'}, rows dealt anew continue otherwise (by "
        f"{show(size)}) than the same rows from the start: something of each row is left behind"
    )
    return [Finding("padded.cache", severity, message, {"view": view.name, "left": left, "reordered": True})]


def remembered(subject: Subject) -> list[Finding]:
    """Padding among the tokens of a target stays hidden from those that come after it, one at a time."""
    model, view = subject.model(), subject.views[0]
    source, plain = subject.inputs(2, 9, seed=81)
    padded = plain.clone()
    assert subject.pad is not None
    padded[:, 3:5] = subject.pad
    for target in (plain, padded):
        request = Decoding(subject, model, (source, target))
        request.feed(target[:, :6])
        steps = torch.cat([request.feed(target[:, t : t + 1]) for t in range(6, 9)], dim=1)
        size = gap(steps, subject.whole(model, (source, target))[:, 6:])
        if size > request.tolerance():
            break
    if size <= request.tolerance() or target is plain:
        return []  # what is wrong without padding, the cache probe says
    message = (
        f"behind padding in the target, outputs with the cache differ by {show(size)} from the full pass: what was "
        "padding is read once it lies in the past"
    )
    return [Finding("padded.cache", WARNING, message, {"view": view.name, "left": False, "past": True})]
