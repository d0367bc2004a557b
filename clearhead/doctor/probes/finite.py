"""Nothing turns into NaN: not for a row of padding alone, not in 16 bits, not with scores that are very large.

A query that may look at nothing must not poison the gradients of the whole batch; a softmax must not overflow.
"""

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, WARNING, Finding
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject, View, parameters_of, shake

ALONE = "a row of padding alone"
LEFT = "padding on the left"


def finite_gradients(model: nn.Module) -> list[str]:
    """The parameters whose gradient holds something that is no number."""
    return [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]


def passes(
    subject: Subject, view: View, model: nn.Module, tokens: Tensor, real: Tensor | None, path: str = ""
) -> tuple[bool, list[str]]:
    """Are the outputs of real tokens finite, and which gradients of their sum are not?"""
    model.zero_grad()
    out = subject.run(view, model, tokens, real, path)
    kept = out if real is None else out[real.any(dim=1)] if not view.aligned else out[real]
    good = bool(kept.isfinite().all())
    if good and kept.requires_grad:
        kept.float().pow(2).mean().backward()
    return good, finite_gradients(model)


def masks(real: Tensor) -> dict[str, Tensor]:
    whole_row, left = real.clone(), real.clone()
    whole_row[1] = False
    left[1, :4] = False
    return {ALONE: whole_row, LEFT: left}


def run(subject: Subject) -> list[Finding]:
    findings: list[Finding] = []
    tokens = subject.tokens(3, 7, seed=5)
    # not in float64: its most negative number is -inf to code that takes its softmax in float32
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        model = shake(subject.raw(dtype=dtype))
        narrow = dtype in (torch.float16, torch.bfloat16)
        for view in subject.views:
            cases: dict[str, Tensor | None] = {"ordinary tokens": None}
            if view.padded:
                cases |= masks(torch.ones_like(tokens, dtype=torch.bool))
            for name, real in cases.items():
                try:
                    good, bad = passes(subject, view, model, tokens, real)
                except Raised as error:
                    if not (narrow or error.refused):
                        raise
                    continue  # a kernel that does not exist in 16 bits on this machine, or a model that takes none
                if good and not bad:
                    continue
                what = f"gradients of {len(bad)} parameters, {bad[0]} among them," if good else "outputs of real tokens"
                message = f"with {name} in {str(dtype)[6:]} the {what} are not finite ({view.name}, batch 3, length 7)"
                evidence = {"case": name, "dtype": str(dtype), "gradient": good, "view": view.name}
                # no loader makes a row without a single token; what happens to one is worth knowing all the same
                # … and translations are padded on the right
                unusual = name == ALONE or (name == LEFT and view.name == "target" and not subject.spec.left_padded)
                mild = unusual or (real is None and narrow)
                severity = WARNING if mild else ERROR
                kind = "finite.padding" if real is not None else "finite.values"
                findings.append(Finding(kind, severity, message, evidence))
    return [*(unique(findings) or on_paths(subject, tokens)), *large_scores(subject)]


def on_paths(subject: Subject, tokens: Tensor) -> list[Finding]:
    """Kernels differ in what they make of a query with nothing to look at: the other ways to run it are asked, too."""
    takes = parameters_of(subject.spec.forward)
    model = shake(subject.raw(dtype=torch.float32))
    for path, forward in subject.spec.paths.items():
        for view in subject.views:
            if not view.padded or parameters_of(forward) < takes:
                continue
            for name, real in masks(torch.ones_like(tokens, dtype=torch.bool)).items():
                try:
                    good, bad = passes(subject, view, model, tokens, real, path)
                except Raised:
                    continue
                if good and not bad:
                    continue
                what = f"gradients of {len(bad)} parameters, {bad[0]} among them," if good else "outputs of real tokens"
                message = (
                    f"on the path {path!r}, with {name} the {what} are not finite ({view.name}); elsewhere they are"
                )
                evidence = {"case": name, "dtype": "torch.float32", "gradient": good, "view": view.name}
                return [Finding("finite.padding", WARNING, message, evidence)]
    return []


def unique(findings: list[Finding]) -> list[Finding]:
    """One finding for each case and width: the first that failed, an error before a warning."""
    kept: dict[tuple[str, bool], Finding] = {}
    for finding in sorted(findings, key=lambda finding: finding.severity != ERROR):
        kept.setdefault((finding.id, "16" in finding.evidence["dtype"]), finding)
    return list(kept.values())


def large_scores(subject: Subject) -> list[Finding]:
    """With every matrix a hundred times larger, scores reach the tens of thousands: exp() alone overflows there."""
    model = shake(subject.raw(dtype=torch.float32))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(100.0)
    view = subject.views[0]
    try:
        out = subject.quiet(view, model, subject.tokens())
    except Raised:
        return []
    if out.isfinite().all():
        return []
    message = "with every matrix a hundred times larger (float32) the outputs are not finite: something overflows"
    return [Finding("finite.large", ERROR, message, {})]
