"""A norm takes out the size of what it is given, gives what its gain says, and survives a token of zeros.

Every module with one gain for each feature, all ones when it is built, that is called with tokens of that width is
asked directly: with a token eight times as large, and with zeros. What only multiplies (a gain alone) is no norm.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.finding import WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject

LARGER = 8.0


def candidates(subject: Subject, model: nn.Module) -> dict[str, tuple[nn.Module, Tensor]]:
    """Modules that may be norms, one of each kind, and what each was called with."""
    seen: dict[str, tuple[nn.Module, Tensor]] = {}

    def note(name: str, module: nn.Module, given: tuple[Any, ...], out: Any) -> None:
        alone = len(given) == 1 and isinstance(given[0], Tensor) and isinstance(out, Tensor)
        if alone and given[0].is_floating_point() and given[0].shape == out.shape:
            seen.setdefault(name, (module, given[0].detach()))

    hooks = []
    for name, module in model.named_modules():
        own = [p for p in module.parameters() if p.dim() == 1]
        gain = next((p for p in own if bool((p == 1).all()) and p.numel() > 4), None)
        if gain is not None and not list(module.children()) and len(own) == len(list(module.parameters())):
            hooks.append(module.register_forward_hook(lambda m, x, out, name=name: note(name, m, x, out)))
    try:
        subject.whole(model, subject.inputs(2, 7, seed=90))
    finally:
        for hook in hooks:
            hook.remove()
    kinds = {(type(module), x.size(-1)): (name, module, x) for name, (module, x) in reversed(seen.items())}
    return {name: (module, x) for name, module, x in kinds.values()}


def judge(name: str, module: nn.Module, like: Tensor) -> Finding | None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.dtype)
    with torch.no_grad():
        once, larger, zeros = module(x), module(LARGER * x), module(torch.zeros_like(x))
    size = float(once.double().pow(2).mean().sqrt())
    if not torch.isfinite(once).all() or float((larger - LARGER * once).abs().max()) <= 1e-3 * LARGER * size:
        return None  # it multiplies, and is no norm
    apart = float((larger - once).abs().max()) / max(size, 1e-12)
    kind = f"{name} ({type(module).__name__})"
    if apart > 0.02:
        grown = float(larger.double().pow(2).mean().sqrt()) / max(size, 1e-12)
        message = (
            f"{kind} gives outputs {show(grown)} times as large for tokens {LARGER:g} times as large: no norm does"
        )
        return Finding("norm.scale", WARNING, message, {"grown": grown})
    if abs(size - 1) > 0.1:
        message = f"with gains of one, what {kind} gives has a size of {show(size)}, not of one"
        return Finding("norm.size", WARNING, message, {"size": size})
    if not torch.isfinite(zeros).all():
        message = (
            f"{kind} gives {float(zeros.flatten()[0])} for a token of zeros: nothing keeps it from dividing by zero"
        )
        return Finding("norm.zeros", WARNING, message, {})
    return None


def run(subject: Subject) -> list[Finding]:
    found = candidates(subject, subject.raw())
    if not found:
        raise NotArmed("no module with one gain for each feature was seen")
    judged = [judge(name, module, x) for name, (module, x) in found.items()]
    return [finding for finding in judged if finding is not None][:2]
