"""A row does not know its neighbours: alone, in a batch and in a permuted batch it gives the same outputs.

Sizes are distinct primes first; then batch, length and heads agree, where a mask or a table broadcasts by accident.
"""

import torch

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, gap


def shapes(subject: Subject) -> list[tuple[int, int, str]]:
    heads = int(subject.sizes.get("heads", 3))
    return [(5, 11, "distinct"), (2, 7, "distinct"), (7, 7, "B=S"), (heads, 11, "B=H"), (heads, heads, "B=S=H")]


def run(subject: Subject) -> list[Finding]:
    if subject.spec.coupled:
        raise NotArmed("declared coupled=True: rows influence each other on purpose")
    view = subject.views[0]
    findings = []
    for mode in ("evaluation", "training"):
        model = subject.model() if mode == "evaluation" else subject.without_dropout().train()
        tolerance = subject.tolerance(view) if subject.exact() else float("inf")
        failed: dict[str, tuple[float, int, int]] = {}
        for batch, length, name in shapes(subject):
            inputs = subject.inputs(batch, length, seed=batch)
            torch.manual_seed(0)
            together = subject.whole(model, inputs)
            torch.manual_seed(1)
            if gap(together, subject.whole(model, inputs)) > tolerance:
                break  # dropout that build cannot switch off: rows differ by chance
            rows = [subject.whole(model, tuple(x[i : i + 1] for x in inputs)) for i in range(batch)]
            turned = subject.whole(model, tuple(x.flip(0) for x in inputs)).flip(0)
            alone, order = gap(together, torch.cat(rows)), gap(together, turned)
            if max(alone, order) > tolerance:
                failed[name] = (max(alone, order), batch, length)
        if failed:
            size, batch, length = next(iter(failed.values()))
            only = "" if "distinct" in failed else f" (only where {', '.join(failed)})"
            message = (
                f"a row of a batch of {batch} (length {length}, {mode} mode) differs from the same row alone "
                f"or in another order by {show(size)}{only}; noise {show(subject.noise(view))}"
            )
            evidence = {"shapes": list(failed), "mode": mode, "relative": size / subject.spread(view)}
            findings.append(Finding("batch.coupled", ERROR, message, evidence))
            break
    return findings
