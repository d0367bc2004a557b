"""One update from several micro-batches is one step down the gradient of the whole batch, clipped as declared.

The doctor hands the training step its own plain SGD with a learning rate of one, so the change of the parameters is
the gradient as the step sees it. Its direction shows how micro-batches were weighed, its length how it was clipped;
a second step shows whether the gradients of the first were cleared.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject

Batch = Any


def micro_batches(subject: Subject, seed: int) -> tuple[list[Batch], Batch]:
    """Two micro-batches with very different numbers of real tokens, and the batch they make together."""
    pad, pair = subject.spec.pad, isinstance(subject.spec, EncoderDecoder)
    if pad is not None:
        small, large = subject.inputs(2, 9, seed), subject.inputs(2, 9, seed + 1)
        small = tuple(x.clone() for x in small)
        for x in small:
            x[:, 4:] = pad
        whole = tuple(torch.cat([a, b]) for a, b in zip(small, large, strict=True))
    else:
        large = subject.inputs(4, 9, seed)
        whole, small, large = large, tuple(x[:1] for x in large), tuple(x[1:] for x in large)
    if pair:
        return [small, large], whole
    return [small[0], large[0]], whole[0]


def gradient(subject: Subject, model: nn.Module, batch: Batch) -> Tensor:
    model.zero_grad()
    given = batch if isinstance(batch, tuple) else (batch,)
    result: Any = subject.spec.loss(model, *given)  # type: ignore[misc]
    getattr(result, "loss", result).backward()
    flat = torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in model.parameters()])
    model.zero_grad()
    return flat.double()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double()


def step(subject: Subject, model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> Tensor:
    before = flat(model)
    subject.spec.update(model, optimizer, batches)  # type: ignore[misc]
    return before - flat(model)


def angle(a: Tensor, b: Tensor) -> float:
    """The distance between two directions."""
    return float((a / a.norm().clamp(min=1e-30) - b / b.norm().clamp(min=1e-30)).norm())


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()).clamp(min=1e-30))


def readings(subject: Subject, model: nn.Module, batches: list[Batch], whole: Tensor) -> dict[str, Tensor]:
    parts = [gradient(subject, model, batch) for batch in batches]
    return {
        "the whole batch": whole,
        "the mean of the micro-batches' means": sum(parts) / len(parts),  # type: ignore[dict-item]
        "the last micro-batch alone": parts[-1],
        "the first micro-batch alone": parts[0],
        "the gradient with its sign turned": -whole,
    }


def run(subject: Subject) -> list[Finding]:
    if subject.spec.update is None or subject.spec.loss is None:
        raise NotArmed("no update() and loss() described")
    overrides: dict[str, Any] = {"dropout": 0.0} if "dropout" in subject.names else {}
    # as initialised and in float32, as a training run would start
    model = subject.raw(dtype=torch.float32, **overrides).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    batches, together = micro_batches(subject, 80)
    whole = gradient(subject, model, together)
    torch.manual_seed(1)
    if angle(whole, gradient(subject, model, together)) > 1e-4:
        raise NotArmed("the gradient is random: let build take dropout, so that it can be switched off")
    known = readings(subject, model, batches, whole)
    try:
        moved = step(subject, model, optimizer, batches)
    except (AttributeError, KeyError, TypeError) as error:
        raise NotArmed(f"update(model, optimizer, micro_batches) raised {type(error).__name__}: {error}") from error
    if float(moved.norm()) == 0.0:
        return [Finding("update.nothing", ERROR, "update() changed no parameter", {})]
    fits = min(known, key=lambda name: angle(moved, known[name]))
    if fits != "the whole batch" and angle(moved, whole) > 1e-2:
        message = (
            f"two micro-batches of different size moved the parameters along {fits}, not along the gradient of the "
            f"whole batch (cosine {cosine(moved, whole):.6f})"
        )
        return [Finding("update.direction", ERROR, message, {"reading": fits})]
    findings = length(subject, whole, moved)
    findings += second_step(subject, model, optimizer)
    return findings


def length(subject: Subject, whole: Tensor, moved: Tensor) -> list[Finding]:
    clip = subject.spec.clip
    expected = float(whole.norm()) if clip is None else min(float(whole.norm()), clip)
    ratio = float(moved.norm()) / expected
    if clip is None and ratio < 1:
        # an undeclared clip shortens the step; only a step that hardly moves is suspicious
        ratio = 1.0 if ratio > 0.02 else ratio
    if abs(ratio - 1) < 1e-2:
        return []
    message = (
        f"an update with SGD and a learning rate of 1 moved the parameters by {show(float(moved.norm()))}; "
        f"the gradient {'clipped to ' + str(clip) if clip else ''} has length {show(expected)}"
    )
    severity = ERROR if clip is not None or ratio > 1 else WARNING
    return [Finding("update.length", severity, message, {"ratio": ratio})]


def second_step(subject: Subject, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Finding]:
    batches, together = micro_batches(subject, 84)
    whole = gradient_keeping(subject, model, together)
    moved = step(subject, model, optimizer, batches)
    # a loss scale hides what was kept: it is smaller by that factor, but rounding is smaller still
    if angle(moved, whole) < 2e-4:
        return []
    message = (
        f"the second update does not follow its own gradient (cosine {cosine(moved, whole):.6f}): "
        "the first one's is still in it"
    )
    return [Finding("update.kept", ERROR, message, {})]


def gradient_keeping(subject: Subject, model: nn.Module, batch: Batch) -> Tensor:
    """The gradient of a batch, leaving whatever the step left in .grad where it is."""
    kept = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    result = gradient(subject, model, batch)
    for parameter, old in zip(model.parameters(), kept, strict=True):
        parameter.grad = old
    return result
