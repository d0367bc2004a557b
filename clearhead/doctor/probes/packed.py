"""Documents packed into one row give the outputs they give apart."""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, gap, outputs


def sees_ahead(subject: Subject, model: nn.Module, tokens: Tensor, documents: Tensor) -> bool:
    """Does changing the last token of a document move an earlier output, though only where documents are packed?"""
    spec: Any = subject.spec
    changed = tokens.clone()
    last = int((documents[0] == documents[0, 0]).sum()) - 1
    changed[:, last] = subject.other(tokens)[:, last]
    with torch.no_grad():
        both = [outputs(subject.call("packed", spec.packed, model, x, documents)) for x in (tokens, changed)]
    return gap(both[0][:, :last], both[1][:, :last]) > subject.tolerance(subject.views[0])


def sees_others(subject: Subject, model: nn.Module, tokens: Tensor, documents: Tensor, number: int) -> bool:
    """Do other tokens in the documents before it move the outputs of a document?"""
    spec: Any = subject.spec
    changed = torch.where(documents < number, subject.other(tokens), tokens)
    with torch.no_grad():
        both = [outputs(subject.call("packed", spec.packed, model, x, documents)) for x in (tokens, changed)]
    own = documents[0] == number
    return gap(both[0][:, own], both[1][:, own]) > subject.tolerance(subject.views[0])


def run(subject: Subject) -> list[Finding]:
    spec: Any = subject.spec
    if getattr(spec, "packed", None) is None:
        raise NotArmed("no packed() described")
    subject.require_exact()
    model = subject.model()
    texts = [subject.tokens(2, length, seed=100 + length) for length in (4, 6, 3)]
    tokens = torch.cat(texts, dim=1)
    documents = torch.cat([torch.full_like(text, number) for number, text in enumerate(texts)], dim=1)
    with torch.no_grad():
        together = outputs(subject.call("packed", spec.packed, model, tokens, documents))
    start, view = 0, subject.views[0]
    for number, text in enumerate(texts):
        size = gap(together[:, start : start + text.size(1)], subject.quiet(view, model, text))
        if size > subject.tolerance(view):
            message = (
                f"document {number} of three packed into one row gives outputs that differ by {show(size)} from the "
                f"document alone; noise {show(subject.noise(view))}"
            )
            ahead = sees_ahead(subject, model, tokens, documents)
            message += "; packed, a token sees what follows it" if ahead else ""
            evidence = {
                "document": number,
                "ahead": ahead,
                "visible": number > 0 and sees_others(subject, model, tokens, documents, number),
                "relative": size / subject.spread(view),
                "positions": spec.positions,
            }
            return [Finding("packed.differs", ERROR, message, evidence)]
        start += text.size(1)
    return []
