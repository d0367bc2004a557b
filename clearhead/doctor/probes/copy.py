"""A copy lives on its own: deep copies, saved weights and other builds share nothing with the model they came from.

A function that was made over a module, a default argument that is a module, a weight tied through `.data`: each keeps
two models together that should be apart, or takes apart what should be one.
"""

import copy

import torch
from torch import Tensor, nn

from clearhead.doctor import sizes as sizes_
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, gap, shake


def memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def aliases(model: nn.Module) -> list[tuple[str, str]]:
    """Names of parameters that are not the same but share their memory."""
    first: dict[int, str] = {}
    found = []
    for name, parameter in model.named_parameters():
        if parameter.numel() and memory(parameter) in first:
            found.append((first[memory(parameter)], name))
        first.setdefault(memory(parameter), name)
    return found


def ties(model: nn.Module) -> set[frozenset[str]]:
    """Groups of names that stand for one parameter."""
    groups: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), set()).add(name)
    return {frozenset(names) for names in groups.values() if len(names) > 1}


def built(subject: Subject, seed: int) -> nn.Module:
    """A build as its owner gets it: neither converted nor copied."""
    torch.manual_seed(seed)
    return subject.spec.build(**sizes_.arguments(subject.spec.build, subject.sizes))


def between_builds(subject: Subject) -> list[Finding]:
    """Two builds share no parameter, unless they are one and the same."""
    first, second = built(subject, 0), built(subject, 1)
    ours = {memory(p) for p in first.parameters() if p.numel()}
    shared = [name for name, p in second.named_parameters() if p.numel() and memory(p) in ours]
    if not shared or len(shared) == len(list(second.parameters())):
        return []
    trained = any(p.requires_grad for name, p in second.named_parameters() if name in shared)
    message = f"two models built one after the other share {len(shared)} parameters, {shared[0]} among them"
    return [Finding("copy.builds", ERROR if trained else WARNING, message, {"names": shared})]


def tied_by_data(subject: Subject) -> list[Finding]:
    pairs = aliases(built(subject, 0))
    if not pairs:
        return []
    apart = not aliases(built(subject, 0).double())
    message = (
        f"{pairs[0][0]} and {pairs[0][1]} share their memory without being one parameter"
        f"{': after .double() or a deep copy they are apart' if apart else ''}"
    )
    return [Finding("copy.alias", ERROR if apart else WARNING, message, {"pairs": len(pairs)})]


def plain_tensors(subject: Subject) -> list[Finding]:
    """A tensor that is neither a parameter nor a buffer stays behind when the model is moved or converted."""
    model, inputs = subject.fresh(), subject.inputs(2, 7, seed=66)
    before = subject.whole(model, inputs)
    untouched = subject.raw()  # what a pass keeps for the next is made where it is needed
    for place, module in untouched.named_modules():
        for name, value in vars(module).items():
            if not (isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1):
                continue
            twin = copy.deepcopy(model)
            table = getattr(twin.get_submodule(place), name, None)
            if not isinstance(table, Tensor) or table.shape != value.shape:
                continue
            with torch.no_grad():
                table.add_(torch.randn(table.shape, generator=torch.Generator().manual_seed(3)).to(table.dtype))
            if gap(before, subject.whole(twin, inputs)) > subject.tolerance(subject.views[0]):
                full = f"{place}.{name}".lstrip(".")
                message = f"{full} is a plain tensor: .to() and .half() leave it as it is, and it is not saved"
                over = shares_memory(built(subject, 0), place, name)
                if over is not None:
                    message += f"; it was made of {over}, and goes on without it"
                severity = ERROR if over is not None else WARNING
                return [Finding("copy.unmoved", severity, message, {"name": full, "tied": over is not None})]
    return []


def shares_memory(model: nn.Module, place: str, name: str) -> str | None:
    """The parameter whose memory a plain tensor shares, as long as nobody moves the model."""
    value = getattr(model.get_submodule(place), name, None)
    owners = {memory(p): own for own, p in model.named_parameters() if p.numel()}
    return owners.get(memory(value)) if isinstance(value, Tensor) and value.numel() else None


def deep(subject: Subject) -> list[Finding]:
    """A deep copy gives the same outputs, and goes on doing so when the original is trained."""
    model, inputs = subject.fresh(), subject.inputs(2, 7, seed=66)
    tolerance = subject.tolerance(subject.views[0])
    before = subject.whole(model, inputs)
    try:
        twin = copy.deepcopy(model)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else ""
        message = f"copy.deepcopy(model) raised {type(error).__name__}: {reason}"
        return [Finding("copy.refused", WARNING, message, {})]
    findings = []
    apart = gap(before, subject.whole(twin, inputs))
    if apart > tolerance:
        return [Finding("copy.differs", ERROR, f"a deep copy gives outputs that differ by {show(apart)}", {})]
    lost = ties(model) - ties(twin)
    if lost:
        names = ", ".join(sorted(next(iter(lost))))
        findings.append(Finding("copy.untied", ERROR, f"in a deep copy {names} are no longer one parameter", {}))
    changed = stirred(subject, model, twin, inputs)
    if changed is not None:
        name, size = changed
        message = (
            f"changing {name} of a model moves the outputs of its deep copy by {show(size)}: the copy still uses it"
        )
        findings.append(Finding("copy.shared", ERROR, message, {"name": name}))
    return findings


def stirred(
    subject: Subject, model: nn.Module, twin: nn.Module, inputs: tuple[Tensor, ...]
) -> tuple[str, float] | None:
    """Change every parameter of the model; where its copy moves, the first parameter that does it."""
    tolerance, before = subject.tolerance(subject.views[0]), subject.whole(twin, inputs)
    kept = {name: p.detach().clone() for name, p in model.named_parameters()}
    shake(model, seed=13)
    moved = gap(before, subject.whole(twin, inputs))
    if moved <= tolerance:
        return None
    shaken = {name: p.detach().clone() for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            for other, p in model.named_parameters():
                p.copy_(kept[other])
            parameter.copy_(shaken[name])
        size = gap(before, subject.whole(twin, inputs))
        if size > tolerance:
            return name, size
    return "the parameters", moved


def loaded(subject: Subject) -> list[Finding]:
    """What was saved after use loads into a model that has not run yet, and ties survive it."""
    if subject.fixed:
        return []
    used, new = subject.fresh(0), subject.fresh(1)
    inputs = subject.inputs(2, 7, seed=67)
    unused = set(used.state_dict())
    out = subject.whole(used, subject.inputs(2, 11, seed=67))
    out = subject.whole(used, inputs)
    before = ties(new)
    try:
        new.load_state_dict({name: x.clone() for name, x in used.state_dict().items()})
    except RuntimeError as error:
        if set(used.state_dict()) == unused and same_shapes(used, subject.fresh(0)):
            return []  # it does not load before use either: the parameters probe says so
        reason = str(error).splitlines()[-1].strip()
        message = f"a state dict saved after a pass does not load into a model that has not run: {reason}"
        return [Finding("copy.lazy", ERROR, message, {})]
    if before - ties(new):
        names = ", ".join(sorted(next(iter(before - ties(new)))))
        return [Finding("copy.untied", ERROR, f"after load_state_dict {names} are no longer one parameter", {})]
    fine = gap(subject.whole(new, inputs), out) <= subject.tolerance(subject.views[0])
    return [] if fine else forgotten(subject, out, new, inputs)


def forgotten(subject: Subject, out: Tensor, new: nn.Module, inputs: tuple[Tensor, ...]) -> list[Finding]:
    """A state dict that gives other outputs only once it was saved after use; else the parameters probe says so."""
    first, second = subject.fresh(0), subject.fresh(1)
    second.load_state_dict(first.state_dict())
    if gap(subject.whole(first, inputs), subject.whole(second, inputs)) > subject.tolerance(subject.views[0]):
        return []
    size = gap(subject.whole(new, inputs), out)
    message = f"a state dict saved after a pass and loaded elsewhere gives outputs that differ by {show(size)}"
    return [Finding("copy.lazy", ERROR, message, {})]


def same_shapes(a: nn.Module, b: nn.Module) -> bool:
    first, second = a.state_dict(), b.state_dict()
    return all(name in second and x.shape == second[name].shape for name, x in first.items())


def beside_another(subject: Subject) -> list[Finding]:
    """Another model of the same kind runs in between: nothing changes."""
    model, inputs = subject.fresh(0), subject.inputs(2, 7, seed=68)
    before = subject.whole(model, inputs)
    subject.whole(subject.fresh(1), subject.inputs(3, 9, seed=69))
    size = gap(before, subject.whole(model, inputs))
    if size <= subject.tolerance(subject.views[0]):
        return []
    again = gap(subject.whole(model, inputs), subject.whole(model, inputs))
    if again > subject.tolerance(subject.views[0]):
        return []  # it remembers its own calls: the mode probe says so
    message = f"after another model of this kind has run, the same input gives outputs that differ by {show(size)}"
    return [Finding("copy.together", ERROR, message, {})]


def run(subject: Subject) -> list[Finding]:
    subject.require_exact()
    model = subject.model()
    if not any(p.requires_grad for p in model.parameters()):
        raise NotArmed("the model has no parameters to tell copies apart by")
    findings = [*between_builds(subject), *tied_by_data(subject), *deep(subject)]
    if not any(finding.id == "copy.refused" for finding in findings):
        findings += plain_tensors(subject)
    return [*findings, *loaded(subject), *beside_another(subject)]
