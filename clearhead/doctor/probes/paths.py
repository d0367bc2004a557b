"""Every declared way to run the model (another kernel, attention weights returned) gives the same outputs."""

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, gap


def run(subject: Subject) -> list[Finding]:
    if not subject.spec.paths:
        raise NotArmed("no other paths described")
    subject.require_exact()
    findings = []
    for view in subject.views:
        model, tokens = subject.model(), subject.tokens()
        usual = subject.quiet(view, model, tokens)
        for path in subject.spec.paths:
            other = subject.quiet(view, model, tokens, path=path)
            size = gap(usual, other)
            if size > subject.tolerance(view):
                message = f"the path {path!r} gives outputs that differ from forward's by {show(size)} ({view.name})"
                multiple = float((usual * other).sum() / usual.pow(2).sum()) if usual.shape == other.shape else 0.0
                scaled = multiple > 0 and gap(multiple * usual, other) <= subject.tolerance(view)
                message += f": they are {show(multiple)} times forward's" if scaled else ""
                evidence = {"path": path, "view": view.name, "multiple": multiple if scaled else None}
                findings.append(Finding("paths.differ", ERROR, message, evidence))
    return findings
