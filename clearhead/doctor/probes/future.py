"""No position may see its future: changing token t must leave every output before t alone.

Asked by value in evaluation and in training mode (with the same dropout both times) and along every declared path,
and by gradient, which must be exactly zero. How far the leak reaches at depth one tells the causes apart.
"""

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.influence import by_gradient
from clearhead.doctor.probes import show
from clearhead.doctor.probes.attention import future_scores
from clearhead.doctor.subject import Subject, View, gap


def leaks(subject: Subject, view: View, model: nn.Module, tokens: Tensor, path: str = "") -> Tensor:
    """How much changing token j moves output i, for every i before j: (S, S), zero elsewhere."""
    length = tokens.size(1)
    prefix = subject.prefix
    torch.manual_seed(0)
    before = subject.quiet(view, model, tokens, path=path)
    other = subject.other(tokens)
    moved = torch.zeros(length, length, dtype=torch.float64)
    for j in range(max(1, prefix), length):
        changed = tokens.clone()
        changed[:, j] = other[:, j]
        torch.manual_seed(0)
        after = subject.quiet(view, model, changed, path=path)
        for i in range(j):
            moved[i, j] = gap(before[:, i], after[:, i])
    return moved


def repeatable(subject: Subject, view: View, model: nn.Module, tokens: Tensor, path: str) -> bool:
    torch.manual_seed(0)
    first = subject.quiet(view, model, tokens, path=path)
    torch.manual_seed(0)
    return gap(first, subject.quiet(view, model, tokens, path=path)) <= subject.tolerance(view)


def smallest(subject: Subject, view: View, model: nn.Module, tolerance: float, path: str) -> str:
    """The shortest input that shows the leak, with one row where one row is enough."""
    for batch in (1, 3):
        for length in range(2, 8):
            tokens = subject.tokens(batch, length)
            moved = leaks(subject, view, model, tokens, path)
            if moved.max() > tolerance:
                i, j = divmod(int(moved.argmax()), length)
                other = int(subject.other(tokens)[0, j])
                row = tokens[0].tolist()
                return (
                    f"the shortest input that shows it: {row}, where token {j} becomes {other} "
                    f"and output {i} moves by {show(float(moved[i, j]))}"
                )
    return ""


def examine(subject: Subject, view: View) -> Finding | None:
    tolerance, spread = subject.tolerance(view), subject.spread(view)
    tokens = subject.tokens(2)
    seen: dict[str, Tensor] = {}
    clean: list[str] = []
    for path in ["", *subject.spec.paths]:
        for mode in ("evaluation", "training"):
            model = subject.model()
            if mode == "training":
                if subject.spec.coupled:
                    continue
                model = model.train()
            if not repeatable(subject, view, model, tokens, path):
                continue
            name = f"{path} {mode}".strip()
            moved = leaks(subject, view, model, tokens, path)
            if moved.max() > tolerance:
                seen[name] = moved
            else:
                clean.append(name)
    if not seen:
        return None
    name, moved = next(iter(seen.items()))
    i, j = divmod(int(moved.argmax()), moved.size(0))
    path = next((known for known in subject.spec.paths if name.startswith(known)), "")
    model = subject.model().train("training" in name)
    offsets = sorted({int(b - a) for a, b in (moved > tolerance).nonzero().tolist()})
    evidence = {
        "view": view.name,
        "offsets": offsets,
        "positions": sorted({int(a) for a, _ in (moved > tolerance).nonzero().tolist()}),
        "relative": float(moved.max()) / spread,
        "modes": list(seen),
        "clean_modes": clean,
        **at_depth_one(subject, view, tolerance),
        "scores": future_scores(subject, view, model, path),
    }
    only = f" (only in: {', '.join(seen)})" if clean else ""
    message = (
        f"changing {view.token} {j} moved the output of position {i} by {show(float(moved[i, j]))}{only}; "
        f"noise {show(subject.noise(view))}; {smallest(subject, view, model, tolerance, path)}"
    )
    return Finding("future.visible", ERROR, message, evidence)


def at_depth_one(subject: Subject, view: View, tolerance: float) -> dict[str, list[int] | None]:
    """How far ahead a single layer sees, and from where; two layers see twice as far, and what others have seen."""
    try:
        moved = leaks(subject, view, subject.model(layers=1), subject.tokens(2))
    except NotArmed:
        return {"depth_one_offsets": None, "depth_one_positions": None}
    pairs = (moved > tolerance).nonzero().tolist()
    offsets, positions = sorted({int(j - i) for i, j in pairs}), sorted({int(i) for i, _ in pairs})
    return {"depth_one_offsets": offsets, "depth_one_positions": positions}


def run(subject: Subject) -> list[Finding]:
    views = [view for view in subject.views if view.causal]
    if not views:
        raise NotArmed("an encoder may see everything")
    findings = []
    for view in views:
        found = examine(subject, view)
        if found is not None:
            findings.append(found)
            continue
        influence = by_gradient(subject, view, subject.model(), subject.tokens(2))
        if influence is None:
            continue
        prefix = subject.prefix
        ahead = influence.triu(1)
        ahead[:, :prefix] = 0
        # terms that cancel exactly on paper (weights masked and renormalised) leave their rounding behind
        if ahead.max() > 1e-12 * influence.max():
            i, j = divmod(int(ahead.argmax()), ahead.size(0))
            size = float(ahead.max() / influence.max())
            message = (
                f"the gradient of output {i} with respect to {view.token} {j}, which lies ahead, is not zero: "
                f"{show(size)} of the largest"
            )
            evidence = {"view": view.name, "relative": size}
            findings.append(Finding("future.gradient", ERROR if size > 1e-9 else WARNING, message, evidence))
    return findings
