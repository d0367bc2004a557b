"""Generating and updating leave the model as they found it: its mode, its weights, its gradients, what may be trained.

A generate() that ends in train() makes every evaluation after it random; one that ends in eval() switches dropout off
for the rest of the training. Neither shows in the text it wrote.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.generating import continued, prompts
from clearhead.doctor.probes.update import micro_batches
from clearhead.doctor.subject import Subject

GRADIENT = 0.5  # stands in every .grad while generate() runs


@dataclass(frozen=True)
class State:
    """What a caller may rely on."""

    training: dict[str, bool]
    trained: dict[str, bool]
    weights: dict[str, Tensor]
    gradients: dict[str, Tensor | None]
    gradient_mode: bool
    dtype: torch.dtype


def state(model: nn.Module) -> State:
    parameters = dict(model.named_parameters())
    return State(
        {name: module.training for name, module in model.named_modules()},
        {name: p.requires_grad for name, p in parameters.items()},
        {name: p.detach().clone() for name, p in parameters.items()},
        {name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()},
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
    )


def same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.equal(a, b)


def first_difference(before: dict[str, Any], after: dict[str, Any], equal: Callable[[Any, Any], bool]) -> str | None:
    return next((name for name in before if name in after and not equal(before[name], after[name])), None)


def compare(what: str, before: State, after: State) -> list[Finding]:
    """What a call changed that was not its own."""
    findings = []
    turned = {name for name, on in before.training.items() if after.training.get(name, on) != on}
    if turned:
        on = not before.training[min(turned)]
        where = "the model" if "" in turned else f"{min(turned)} ({len(turned)} modules)"
        message = f"{what} leaves {where} in {'training' if on else 'evaluation'} mode, where it was not before"
        # a search that wants evaluation mode may say so for good; none wants training mode
        severity = ERROR if on else WARNING
        findings.append(Finding("restore.mode", severity, message, {"call": what, "training": on}))
    frozen = first_difference(before.trained, after.trained, lambda a, b: a == b)
    if frozen is not None:
        now = after.trained[frozen]
        message = f"{what} sets requires_grad of {frozen} to {now} and does not put it back"
        findings.append(Finding("restore.requires-grad", ERROR, message, {"call": what, "now": now}))
    if before.gradient_mode != after.gradient_mode:
        message = f"{what} leaves gradients switched {'on' if after.gradient_mode else 'off'} for everyone"
        findings.append(Finding("restore.gradient-mode", ERROR, message, {"call": what}))
    if before.dtype != after.dtype:
        message = f"{what} leaves {after.dtype} as the default dtype, where it was {before.dtype}"
        findings.append(Finding("restore.dtype", ERROR, message, {"call": what}))
    return findings


def after_generate(subject: Subject) -> list[Finding]:
    findings: list[Finding] = []
    for training in (False, True):
        model = subject.fresh().train(training)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, GRADIENT)
        before, mode, dtype = state(model), torch.is_grad_enabled(), torch.get_default_dtype()
        try:
            continued(subject, model, prompts(subject, 2, 5, seed=14), 3)
        except NotArmed:
            raise
        except Exception:
            if training:
                break  # it refuses to generate in training mode
            raise NotArmed("generate() raised: see what the generate probe says") from None
        after = state(model)
        torch.set_grad_enabled(mode)
        torch.set_default_dtype(dtype)
        findings += compare("generate()", before, after)
        weight = first_difference(before.weights, after.weights, torch.equal)
        if weight is not None:
            findings.append(Finding("restore.weights", ERROR, f"generate() changes {weight}", {}))
        gradient = first_difference(before.gradients, after.gradients, same)
        if gradient is not None and weight is None:
            message = f"generate() changes the gradient of {gradient} that was being collected"
            findings.append(Finding("restore.gradients", ERROR, message, {}))
    return list({finding.id: finding for finding in reversed(findings)}.values())


def after_update(subject: Subject) -> list[Finding]:
    """An update keeps the mode, and the model runs in training mode in every one of them."""
    spec: Any = subject.spec
    model = subject.raw(dtype=torch.float32).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    modes: list[bool] = []
    hook = model.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    before, mode, dtype = state(model), torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        for number in (0, 1):
            spec.update(model, optimizer, micro_batches(subject, 86 + number)[0])
    except Exception:
        raise NotArmed("update() raised: see what the update probe says") from None
    finally:
        hook.remove()
    after = state(model)
    torch.set_grad_enabled(mode)
    torch.set_default_dtype(dtype)
    found = [finding for finding in compare("update()", before, after) if finding.id != "restore.mode"]
    if modes and not all(modes):
        which = "the second update" if modes[0] else "an update"
        message = f"{which} runs the model in evaluation mode, though it was in training mode before"
        found.append(Finding("restore.update-mode", ERROR, message, {"second": modes[0]}))
    elif not after.training[""]:
        found += [finding for finding in compare("update()", before, after) if finding.id == "restore.mode"]
    return found


def run(subject: Subject) -> list[Finding]:
    findings: list[Finding] = []
    reasons = []
    for armed, part in (("generate", after_generate), ("update", after_update)):
        if getattr(subject.spec, armed, None) is None:
            reasons.append(f"no {armed}() described")
            continue
        try:
            findings += part(subject)
        except NotArmed as reason:
            reasons.append(str(reason))
    if len(reasons) == 2:
        raise NotArmed("; ".join(reasons))
    return findings
