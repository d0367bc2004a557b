"""Evaluation is repeatable and remembers nothing; training differs from it by dropout alone."""

import torch

from clearhead.doctor.finding import ERROR, Finding
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, View, gap
from clearhead.doctor.watch import Watch


def run(subject: Subject) -> list[Finding]:
    return [finding for view in subject.views[:1] for finding in examine(subject, view)]


def examine(subject: Subject, view: View) -> list[Finding]:
    tolerance = subject.tolerance(view) if subject.exact() else 0.5 * subject.spread(view)
    model, tokens = subject.fresh(), subject.tokens(2)
    torch.manual_seed(0)
    first = subject.quiet(view, model, tokens)
    torch.manual_seed(0)
    again = subject.quiet(view, model, tokens)
    torch.manual_seed(1)
    with Watch() as watch:
        other_seed = subject.quiet(view, model, tokens)
    if gap(again, other_seed) > tolerance and gap(first, again) <= tolerance:
        return [random_in_evaluation(subject, view, gap(again, other_seed), watch)]
    subject.quiet(view, model, subject.tokens(3, 7, seed=8))
    later = subject.quiet(view, model, tokens)
    findings = []
    if max(gap(first, again), gap(first, later)) > tolerance:
        size = show(max(gap(first, again), gap(first, later)))
        message = f"the same input gives outputs that differ by {size} after other inputs: the model remembers"
        findings.append(Finding("mode.remembers", ERROR, message, {}))
        first = later

    with_gradient = subject.run(view, model, tokens).detach()
    if gap(first, with_gradient) > tolerance:
        message = f"outputs with and without gradients differ by {show(gap(first, with_gradient))}"
        findings.append(Finding("mode.gradient", ERROR, message, {}))
    findings += training(subject, view, tolerance)
    return findings


def random_in_evaluation(subject: Subject, view: View, size: float, watch: Watch) -> Finding:
    lines = [call.where for call in watch.seen.fused if call.dropout > 0] + watch.seen.dropouts
    message = f"in evaluation mode the same input gives outputs that differ by {show(size)} from one call to the next"
    return Finding("mode.random", ERROR, message, {"dropout": bool(lines)}, tuple(dict.fromkeys(lines)))


def training(subject: Subject, view: View, tolerance: float) -> list[Finding]:
    """Without dropout, training mode is evaluation; with dropout, two passes differ."""
    findings = []
    still, tokens = subject.without_dropout(), subject.tokens(2)
    evaluated, trained = subject.quiet(view, still, tokens), subject.quiet(view, still.train(), tokens)
    torch.manual_seed(5)
    repeated = subject.quiet(view, still, tokens)
    deterministic = gap(trained, repeated) <= tolerance
    if deterministic and gap(evaluated, trained) > tolerance and not subject.spec.coupled:
        size, constant = gap(evaluated, trained), float(evaluated.double().std(dim=1).max())
        message = f"without dropout, training and evaluation mode differ by {show(size)} on the same input"
        evidence = {"constant": constant < tolerance}
        findings.append(Finding("mode.differs", ERROR, message, evidence))
    if "dropout" in subject.names:
        model = subject.model().train()
        torch.manual_seed(1)
        one = subject.quiet(view, model, tokens)
        torch.manual_seed(2)
        two = subject.quiet(view, model, tokens)
        if torch.equal(one, two):
            message = f"built with dropout={subject.sizes.get('dropout')}, but two training passes agree: it never acts"
            findings.append(Finding("mode.no-dropout", ERROR, message, {}))
    return findings
