"""Every parameter is used, trained, saved and tied as declared.

A gradient that is missing where a change of the parameter moves the output means that something was detached. Layers
that start out equal were copied; a model of three layers with the parameters of one shares them.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, NOTE, WARNING, Finding
from clearhead.doctor.subject import Subject, gap
from clearhead.doctor.watch import Watch

TINY = 1e-3
TINIER = 1e-6  # so little that it switches on no unit that ReLU has silenced


def moves(subject: Subject, model: nn.Module, parameter: Tensor, rows: Tensor | None = None, size: float = 1.0) -> bool:
    """Does changing these rows of the parameter (all, where None) move the output?"""
    inputs = subject.inputs(2, 11, seed=40)
    before = subject.whole(model, inputs)
    kept = parameter.detach().clone()
    with torch.no_grad():
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        noise = size * noise.to(parameter.dtype)
        if rows is not None:
            noise[~rows] = 0
        parameter.add_(noise)
        after = subject.whole(model, inputs)
        parameter.copy_(kept)
    return gap(before, after) > subject.tolerance(subject.views[0])


def each_moves(subject: Subject, model: nn.Module, parameter: Tensor, rows: Tensor) -> bool:
    """Do these rows move the output, and not only the few that a step switches on because ReLU just silenced them?"""
    if moves(subject, model, parameter, rows, size=TINIER):
        return True
    # where rounding hides so small a step, a larger one is asked of single rows: of silenced ones, most stay silent
    asked = rows.nonzero().flatten()[:6].tolist()
    numbers = torch.arange(len(rows))
    return 2 * sum(moves(subject, model, parameter, numbers == row, size=TINY) for row in asked) > len(asked)


def looked_up(subject: Subject, model: nn.Module) -> set[int]:
    """The tables that rows are looked up in: a row that no token named gets no gradient."""
    with Watch() as watch, torch.no_grad():
        subject.forward(model, subject.inputs(2, 11, seed=40))
    return {weight.data_ptr() for weight, _, _ in watch.seen.lookups}


def gradients(subject: Subject) -> list[Finding]:
    model = subject.without_dropout().train()
    inputs = subject.inputs(5, 11, seed=40)
    out = subject.forward(model, inputs)
    if not out.requires_grad:
        if subject.spec.loss is None and subject.spec.update is None:
            message = "the outputs have no gradient: the model is for inference, or something detaches everything"
            return [Finding("parameters.inference", NOTE, message, {})]
        return [Finding("parameters.detached", ERROR, "the outputs have no gradient at all", {"whole": True})]
    torch.manual_seed(0)
    (out * torch.randn_like(out)).sum().backward()
    tables = looked_up(subject, model.eval())
    detached, unused, detached_rows, unused_rows = [], [], [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or not parameter.is_floating_point():
            continue
        gradient = parameter.grad
        if gradient is None or not gradient.any():
            if moves(subject, model, parameter, size=TINY):
                detached.append(name)
            elif (gradient is None or parameter.dim() > 1) and not moves(subject, model, parameter):
                unused.append(name)
        elif parameter.dim() > 1 and parameter.data_ptr() not in tables:
            rows = ~gradient.flatten(1).any(dim=1)
            if int(rows.sum()) < 2:
                continue
            # a unit that ReLU has silenced for all these tokens moves nothing a little, and something a lot
            if read_by_length(subject, model, name, rows):
                continue
            if each_moves(subject, model, parameter, rows):
                detached_rows.append((name, int(rows.sum())))
            elif not moves(subject, model, parameter, rows):
                unused_rows.append((name, int(rows.sum())))
    return told(detached, unused, detached_rows, unused_rows)


def read_by_length(subject: Subject, model: nn.Module, name: str, unused: Tensor) -> bool:
    """Is this a table of positions? The rows it uses lie side by side, and a shorter input uses fewer of them."""
    used = (~unused).nonzero().flatten()
    if len(used) == 0 or int(used[-1] - used[0]) + 1 != len(used):
        return False
    kept = [p.grad for p in model.parameters()]
    model.zero_grad()
    subject.forward(model, subject.inputs(5, 5, seed=40)).sum().backward()
    gradient = model.get_parameter(name).grad
    fewer = 0 if gradient is None else int(gradient.flatten(1).any(dim=1).sum())
    for parameter, old in zip(model.parameters(), kept, strict=True):
        parameter.grad = old
    return fewer < len(used)


def told(
    detached: list[str], unused: list[str], detached_rows: list[tuple[str, int]], unused_rows: list[tuple[str, int]]
) -> list[Finding]:
    findings = []
    if detached or detached_rows:
        names = detached + [f"{rows} rows of {name}" for name, rows in detached_rows]
        message = f"{len(names)} parameters move the output but get no gradient: {', '.join(names[:4])}"
        findings.append(Finding("parameters.detached", ERROR, message, {"names": names, "whole": False}))
    if unused:
        message = f"{len(unused)} parameters move nothing and get no gradient: {', '.join(unused[:4])}"
        findings.append(Finding("parameters.unused", WARNING, message, {"names": unused}))
    if unused_rows:
        name, rows = unused_rows[0]
        message = f"{rows} rows of {name} move nothing and get no gradient"
        evidence = {"names": [name for name, _ in unused_rows]}
        findings.append(Finding("parameters.unused-rows", WARNING, message, evidence))
    return findings


def shared(subject: Subject) -> list[Finding]:
    if subject.spec.shared or "layers" not in subject.names or subject.fixed:
        return []
    counts = [sum(p.numel() for p in subject.raw(layers=layers).parameters()) for layers in (1, 3)]
    if counts[0] != counts[1]:
        return []
    message = f"three layers have exactly as many parameters as one ({counts[0]}): the same layer runs again and again"
    return [Finding("parameters.shared", ERROR, message, {"count": counts[0]})]


def identical(subject: Subject) -> list[Finding]:
    """Matrices that start out equal without being the same."""
    groups: dict[tuple[int, ...], list[tuple[str, Tensor]]] = defaultdict(list)
    for name, parameter in subject.raw().named_parameters():
        if parameter.dim() > 1 and parameter.requires_grad and parameter.numel() > 4 and parameter.std() > 0:
            groups[tuple(parameter.shape)].append((name, parameter))
    pairs = [
        (first, second)
        for group in groups.values()
        for number, (first, a) in enumerate(group)
        for second, b in group[number + 1 :]
        if torch.equal(a, b)
    ]
    if not pairs:
        return []
    message = f"{pairs[0][0]} and {pairs[0][1]} start out equal ({len(pairs)} such pairs): copied, not initialised"
    return [Finding("parameters.identical", ERROR, message, {"pairs": len(pairs)})]


def saved(subject: Subject) -> list[Finding]:
    """The state of one model, loaded into another with other random weights, gives the same outputs."""
    if subject.fixed:
        return []
    first, second = subject.fresh(0), subject.fresh(1)
    inputs = subject.inputs(2, 7, seed=41)
    try:
        second.load_state_dict(first.state_dict())
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        message = f"a model's own state dict does not load into another of its kind: {reason}"
        return [Finding("parameters.not-saved", ERROR, message, {})]
    size = gap(subject.whole(first, inputs), subject.whole(second, inputs))
    if size <= subject.tolerance(subject.views[0]):
        return []
    message = f"a state dict loaded into another build gives outputs that differ by {size:.2g}: something is not saved"
    return [Finding("parameters.not-saved", ERROR, message, {})]


def equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def ties_and_tables(subject: Subject) -> list[Finding]:
    model, inputs = subject.raw(), subject.inputs(2, 7, seed=42)
    with Watch() as watch, torch.no_grad():
        subject.forward(model, inputs)
    findings = []
    # the table the tokens were looked up in, and the matrix that made as many outputs as there are tokens
    tables = [weight for weight, indices, _ in watch.seen.lookups if any(equal(indices, x) for x in inputs)]
    for weight in tables:
        if weight.numel() > 1 and not weight.detach().any():
            message = f"an untrained embedding of shape {tuple(weight.shape)} is all zeros"
            findings.append(Finding("parameters.zero", ERROR, message, {}))
            break
    heads = [matrix for matrix, out in watch.seen.projections if out.size(-1) >= subject.vocab]
    if subject.spec.tied is not None and tables and heads:
        tied = any(weight.data_ptr() == heads[-1].data_ptr() for weight in tables)
        if tied != subject.spec.tied:
            state = "do not share" if subject.spec.tied else "share"
            message = f"embedding and output head {state} their weight, but tied={subject.spec.tied} is declared"
            findings.append(Finding("parameters.tie", ERROR, message, {"declared": subject.spec.tied}))
    return findings


def run(subject: Subject) -> list[Finding]:
    subject.require_exact()
    found = [*shared(subject), *identical(subject), *ties_and_tables(subject)]
    # where outputs are random, a change in them says nothing
    return [*gradients(subject), *found, *saved(subject)] if subject.repeatable or subject.silenced else found
