"""One update from several micro-batches is one step down the gradient of the whole batch, clipped as declared.

The doctor hands the training step its own SGD, which notes the gradient it is given. Its direction shows how
micro-batches were weighed, its length how it was clipped; what the first step leaves behind must not be in the second.
Dropout is silenced from outside, so that the gradient of a batch is one thing.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import CausalLM, Encoder
from clearhead.doctor.finding import ERROR, NOTE, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject

Batch = Any
WHOLE = "the whole batch"
MEANS = "the mean of the micro-batches' means"


class Noting(torch.optim.SGD):
    """SGD that adds up the gradients it was asked to follow."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.1)
        self.model = model
        self.followed: Tensor | None = None
        self.steps = 0  # since the last time somebody looked

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        given = grads(self.model)
        self.followed = given if self.followed is None else self.followed + given
        return super().step(closure)


def grads(model: nn.Module) -> Tensor:
    """All gradients in one row, zeros where there are none."""
    parts = [(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in model.parameters()]
    return torch.cat(parts).double()


def training_inputs(subject: Subject, rows: int, seed: int) -> tuple[Tensor, ...]:
    """What loss() takes: tokens, source and target, or an encoder's tokens and labels."""
    inputs = subject.inputs(rows, 9, seed)
    return (*inputs, subject.tokens(rows, 9, seed + 40)) if isinstance(subject.spec, Encoder) else inputs


def micro_batches(subject: Subject, seed: int, equal: bool = False) -> tuple[list[Batch], Batch]:
    """Two micro-batches and the batch they make together; with very different numbers of real tokens, or `equal`."""
    pads, pair = (subject.source_pad, subject.pad), not isinstance(subject.spec, CausalLM)
    small, large = training_inputs(subject, 2, seed), training_inputs(subject, 2, seed + 1)
    if equal:
        whole = tuple(torch.cat([a, b]) for a, b in zip(small, large, strict=True))
    elif subject.pad is not None:
        small = tuple(x.clone() for x in small)
        for x, pad in zip(small, pads[-len(small) :], strict=True):
            if pad is not None:
                x[:, 4:] = pad
        whole = tuple(torch.cat([a, b]) for a, b in zip(small, large, strict=True))
    else:
        whole = training_inputs(subject, 4, seed)
        small, large = tuple(x[:1] for x in whole), tuple(x[1:] for x in whole)
    return ([small, large], whole) if pair else ([small[0], large[0]], whole[0])


def gradient(subject: Subject, model: nn.Module, batch: Batch) -> Tensor:
    """The gradient of a batch; what was in .grad stays there."""
    kept = [p.grad for p in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    subject.loss(model, batch if isinstance(batch, tuple) else (batch,)).backward()
    found = grads(model)
    for parameter, old in zip(model.parameters(), kept, strict=True):
        parameter.grad = old
    return found


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double()


def step(subject: Subject, model: nn.Module, optimizer: Noting, batches: list[Batch]) -> Tensor:
    """The gradient that an update followed; where it stepped by itself, how it moved the parameters."""
    before, optimizer.followed, optimizer.steps = flat(model), None, 0
    update: Any = subject.spec.update
    subject.call("update", lambda model: update(model, optimizer, batches), model)
    moved = before - flat(model)
    if optimizer.followed is None or not moved.any():
        return moved
    return optimizer.followed


def angle(a: Tensor, b: Tensor) -> float:
    """The distance between two directions."""
    return float((a / a.norm().clamp(min=1e-30) - b / b.norm().clamp(min=1e-30)).norm())


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()).clamp(min=1e-30))


def readings(subject: Subject, model: nn.Module, batches: list[Batch], whole: Tensor) -> dict[str, Tensor]:
    parts = [gradient(subject, model, batch) for batch in batches]
    each = clipped_each(subject, model, whole)
    known: dict[str, Any] = {
        WHOLE: whole,
        MEANS: sum(parts) / len(parts),
        "the last micro-batch alone": parts[-1],
        "the first micro-batch alone": parts[0],
        "the gradient with its sign turned": -whole,
    }
    return known | ({"the gradient with each tensor clipped by itself": each} if angle(each, whole) > 0.05 else {})


def clipped_each(subject: Subject, model: nn.Module, whole: Tensor) -> Tensor:
    """The gradient as it is if every parameter's part of it is clipped alone."""
    if subject.spec.clip is None:
        return whole
    parts = whole.split([p.numel() for p in model.parameters()])
    return torch.cat([part * min(1.0, subject.spec.clip / max(float(part.norm()), 1e-30)) for part in parts])


def run(subject: Subject) -> list[Finding]:
    if subject.spec.update is None or subject.spec.loss is None:
        raise NotArmed("no update() and loss() described")
    # in float32, as a training run would start
    model = subject.without_dropout(shaken=False, dtype=torch.float32).train()
    batch = micro_batches(subject, 80)[1]
    torch.manual_seed(1)
    first = gradient(subject, model, batch)
    torch.manual_seed(2)
    if angle(first, gradient(subject, model, batch)) > 1e-4:
        raise NotArmed("the gradient of a batch is random, and not by a dropout that can be silenced")
    findings = equally_large(subject, model)
    if not any(finding.severity == ERROR for finding in findings):
        findings += unequal(subject)
    if any(finding.severity != NOTE for finding in findings):
        return findings
    return findings + (gentle(subject, 2) or gentle(subject, 3))


def gentle(subject: Subject, count: int) -> list[Finding]:
    """Gradients too small to be clipped: a clip hides whatever else is done to their length.

    They are made small by hooks on the parameters, which every backward pass runs through. A loop may be meant for
    another number of micro-batches than three; two it has taken before.
    """
    model = subject.without_dropout(shaken=False, dtype=torch.float32).train()
    parts = [training_inputs(subject, 2, 90 + number) for number in range(count)]
    together: Batch = tuple(torch.cat(same) for same in zip(*parts, strict=True))
    batches: list[Batch] = list(parts)
    if isinstance(subject.spec, CausalLM):
        together, batches = together[0], [part[0] for part in parts]
    usual = float(gradient(subject, model, together).norm())
    factor = 0.01 * min(subject.spec.clip or 1.0, 1.0) / max(usual, 1e-30)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_hook(lambda given: given * factor)
    wanted = gradient(subject, model, together)
    try:
        moved = step(subject, model, Noting(model), batches)
    except Raised:
        return []  # it takes another number of batches; what it takes was asked before
    ratio, turned = float(moved.norm()) / max(float(wanted.norm()), 1e-30), angle(moved, wanted)
    if (abs(ratio - 1) < 1e-2 and turned < 5e-2) or not moved.any():
        return []
    if turned > 5e-2:
        message = f"{count} micro-batches moved the parameters along another gradient than the batch they make (cosine "
        evidence = {"reading": "some alone"}
        return [Finding("update.direction", WARNING, f"{message}{cosine(moved, wanted):.6f})", evidence)]
    message = (
        f"{count} micro-batches with a gradient of length {show(float(wanted.norm()))}, too short to be clipped, made "
        f"a step along one of {show(float(moved.norm()))} ({show(ratio)} times as long)"
    )
    severity = ERROR if subject.spec.clip is not None and count == 2 else WARNING
    return [Finding("update.length", severity, message, {"ratio": ratio, "several": False, "small": True})]


def equally_large(subject: Subject, model: nn.Module) -> list[Finding]:
    """Two micro-batches of the same size: whichever way they are averaged, the step is that of the whole batch."""
    optimizer = Noting(model)
    batches, together = micro_batches(subject, 80, equal=True)
    whole = gradient(subject, model, together)
    findings: list[Finding] = []
    try:
        known = readings(subject, model, batches, whole)
        moved = step(subject, model, optimizer, batches)
    except Raised as error:
        if error.what != "update":
            raise
        # a loop without accumulation takes one batch at a time
        batches, known = [together], {WHOLE: whole, "the gradient with its sign turned": -whole}
        moved = step(subject, model, optimizer, batches)
        findings.append(Finding("update.single", NOTE, f"update() takes one batch: {error.told()}", {}))
    if not moved.any():
        return [*findings, Finding("update.nothing", ERROR, "update() changed no parameter", {})]
    several = optimizer.steps > 1
    # of sums the mean of the parts has the same direction: it is the sum that is followed
    fits = WHOLE if angle(moved, whole) < 1e-3 else min(known, key=lambda name: angle(moved, known[name]))
    if fits not in (WHOLE, MEANS) and angle(moved, whole) > 1e-2:
        findings.append(wrong_way(fits, moved, whole, "the same size"))
    elif angle(moved, known[fits]) > 5e-2:
        message = (
            f"the update follows no gradient the doctor knows (cosine with the batch's {cosine(moved, whole):.6f})"
        )
        findings.append(Finding("update.other", WARNING, message, {"several": several}))
    expected, second = float(known[fits].norm()), len(batches)
    if subject.spec.clip is None and 0.02 < float(moved.norm()) / max(expected, 1e-30) < 0.99:
        findings += shortened(subject, model, optimizer, float(moved.norm()), expected, second)
    findings += length(subject, known[fits], moved, several)
    return findings + second_step(subject, model, optimizer, fits, len(batches))


def wrong_way(fits: str, moved: Tensor, whole: Tensor, size: str) -> Finding:
    message = (
        f"two micro-batches of {size} moved the parameters along {fits}, not along the gradient of the "
        f"whole batch (cosine {cosine(moved, whole):.6f})"
    )
    return Finding("update.direction", ERROR, message, {"reading": fits})


def unequal(subject: Subject) -> list[Finding]:
    """Micro-batches with different numbers of real tokens: every token should weigh the same."""
    if subject.spec.equal_micro_batches:
        return []
    model = subject.without_dropout(shaken=False, dtype=torch.float32).train()
    batches, together = micro_batches(subject, 80)
    whole = gradient(subject, model, together)
    known = readings(subject, model, batches, whole)
    try:
        moved = step(subject, model, Noting(model), batches)
    except Raised:
        return []  # it takes one batch, or batches of one shape; what it takes was asked before
    fits = min(known, key=lambda name: angle(moved, known[name]))
    if fits == WHOLE or angle(moved, whole) <= 1e-2:
        return []
    found = wrong_way(fits, moved, whole, "different size")
    # without padding micro-batches are usually cut to one size: then a mean of means is the mean
    if fits == MEANS and subject.pad is None and subject.spec.equal_micro_batches is None:
        return [Finding(found.id, NOTE, f"{found.message}: right as long as all have one size", found.evidence)]
    return [found]


def length(subject: Subject, whole: Tensor, moved: Tensor, several: bool) -> list[Finding]:
    clip = subject.spec.clip
    expected = float(whole.norm()) if clip is None else min(float(whole.norm()), clip)
    ratio = float(moved.norm()) / max(expected, 1e-30)
    if clip is None and ratio < 1:
        # an undeclared clip shortens the step; only a step that hardly moves is suspicious
        ratio = 1.0 if ratio > 0.02 else ratio
    if abs(ratio - 1) < 1e-2:
        return []
    message = (
        f"an update with SGD followed a gradient of length {show(float(moved.norm()))}; that of the batch"
        f"{f', clipped to {clip},' if clip else ''} has length {show(expected)}"
    )
    message += "; it stepped more than once" if several else ""
    unclipped = clip is not None and abs(float(moved.norm()) / max(float(whole.norm()), 1e-30) - 1) < 1e-2
    message += "; it was not clipped" if unclipped else ""
    severity = ERROR if clip is not None or ratio > 1 else WARNING
    evidence = {"ratio": ratio, "several": several, "unclipped": unclipped}
    return [Finding("update.length", severity, message, evidence)]


def shortened(
    subject: Subject, model: nn.Module, optimizer: Noting, moved: float, expected: float, count: int
) -> list[Finding]:
    """A step shorter than the gradient was clipped, or divided: a clip gives all long steps the same length."""
    optimizer.zero_grad()
    batches, together = micro_batches(subject, 88, equal=True)
    other = float(gradient(subject, model, together).norm())
    length = float(step(subject, model, optimizer, batches if count > 1 else [together]).norm())
    optimizer.zero_grad()
    ratio, again = moved / expected, length / max(other, 1e-30)
    if abs(other / expected - 1) < 1e-2 or abs(ratio / again - 1) > 2e-3 or abs(length / moved - 1) < 5e-3:
        return []
    message = (
        f"updates with SGD follow gradients {show(ratio)} times as long as those of their batches ({show(moved)} and "
        f"{show(length)}): divided, not clipped"
    )
    return [Finding("update.length", ERROR, message, {"ratio": ratio, "several": False})]


def second_step(subject: Subject, model: nn.Module, optimizer: Noting, fits: str, count: int) -> list[Finding]:
    """What the first step left in .grad must not be part of the second."""
    left = grads(model)
    batches, together = micro_batches(subject, 84, equal=True)
    whole = gradient(subject, model, together)
    own = whole if count == 1 else readings(subject, model, batches, whole).get(fits, whole)
    moved = step(subject, model, optimizer, batches if count > 1 else [together])
    if not left.any() or not moved.any() or angle(moved, own) < 2e-4:
        return []
    # moved = a own + b left, solved for a and b; anything else that turns the step leaves a rest
    parts = torch.stack([own, left], dim=1)
    shares = torch.linalg.lstsq(parts, moved[:, None]).solution
    rest = float((moved - (parts @ shares).squeeze(1)).norm())
    alone = float((moved - own * (own @ moved) / own.pow(2).sum()).norm())
    if float(shares[1]) <= 0 or rest > 0.2 * alone:
        return []
    message = (
        f"the second update does not follow its own gradient (cosine {cosine(moved, own):.6f}): "
        "the first one's is still in it"
    )
    return [Finding("update.kept", ERROR, message, {})]
