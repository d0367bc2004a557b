"""Documents packed into one row give the outputs they give apart."""

from typing import Any

import torch

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, gap, outputs


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
            return [Finding("packed.differs", ERROR, message, {"document": number})]
        start += text.size(1)
    return []
