"""The optimizer trains every parameter of the model as it is now, and does not decay gains and biases."""

import torch

from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.layered import stacks
from clearhead.doctor.subject import Subject
from clearhead.errors import InputError


def run(subject: Subject) -> list[Finding]:
    if subject.spec.optimizer is None:
        raise NotArmed("no optimizer() described")
    model = subject.raw()
    optimizer = subject.call("optimizer", subject.spec.optimizer, model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(f"optimizer() returned {type(optimizer).__name__}, wanted a torch.optim.Optimizer")
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    findings = []
    missing = [name for key, name in named.items() if key not in trained]
    if missing:
        stale = len(trained - set(named))
        message = f"the optimizer never sees {len(missing)} parameters of the model: {', '.join(missing[:4])}"
        if stale:
            message += f"; it holds {stale} that the model no longer has"
        findings.append(Finding("optimizer.misses", ERROR, message, {"missing": missing, "stale": stale}))
    still = [group for group in optimizer.param_groups if group.get("lr") == 0]
    if still and len(still) < len(optimizer.param_groups):
        names = [named[id(p)] for group in still for p in group["params"] if id(p) in named]
        message = f"{len(names)} parameters are in a group with a learning rate of zero: {', '.join(names[:4])}"
        findings.append(Finding("optimizer.still", WARNING, message, {"names": names}))
    if any(group.get("maximize") for group in optimizer.param_groups):
        findings.append(Finding("optimizer.uphill", ERROR, "the optimizer is told to maximize the loss", {}))
    stacked = stacks(subject)
    decayed = [
        named[id(p)]
        for group in optimizer.param_groups
        if group.get("weight_decay", 0)
        for p in group["params"]
        if id(p) in named and p.dim() <= 1 + (named[id(p)] in stacked)
    ]
    if decayed:
        message = f"weight decay acts on {len(decayed)} gains and biases: {', '.join(decayed[:4])}"
        findings.append(Finding("optimizer.decay", WARNING, message, {"names": decayed}))
    return findings
