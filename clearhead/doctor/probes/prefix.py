"""The outputs of a prefix are those of the whole: f(x[:t]) = f(x)[:t] for every t."""

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject, gap


def run(subject: Subject) -> list[Finding]:
    views = [view for view in subject.views if view.causal]
    if not views:
        raise NotArmed("an encoder's outputs depend on the whole input")
    subject.require_exact()
    findings = []
    for view in views:
        model, tokens, tolerance = subject.model(), subject.tokens(2), subject.tolerance(view)
        whole = subject.quiet(view, model, tokens)
        start = max(1, subject.prefix)
        gaps: dict[int, float] = {}
        for t in range(start, tokens.size(1)):
            try:
                gaps[t] = gap(subject.quiet(view, model, tokens[:, :t]), whole[:, :t])
            except Raised as error:
                if not error.refused or t > start:
                    raise
        bad = [t for t, size in gaps.items() if size > tolerance]
        if bad:
            message = (
                f"the first {bad[0]} of the {view.token}s alone give other outputs than inside {tokens.size(1)}: "
                f"they differ by {show(gaps[bad[0]])}, noise {show(subject.noise(view))}"
            )
            relative = max(gaps.values()) / subject.spread(view)
            findings.append(Finding("prefix.differs", ERROR, message, {"lengths": bad, "relative": relative}))
    return findings
