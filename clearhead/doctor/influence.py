"""Which token moves which output: the influence matrix, by gradient and by change."""

import torch
from torch import Tensor, nn

from clearhead.doctor.subject import Subject, View, gap
from clearhead.doctor.watch import Nudge


def by_gradient(subject: Subject, view: View, model: nn.Module, tokens: Tensor) -> Tensor | None:
    """|d output i / d embedding of token j|, (S_out, S); None where the embedding could not be watched."""
    with Nudge(tokens) as nudge:
        out = subject.run(view, model, tokens)
    if nudge.zero is None or not out.requires_grad:
        return None
    generator = torch.Generator().manual_seed(3)
    direction = torch.randn(out.size(-1), generator=generator, dtype=torch.float64).to(out.dtype)
    rows = []
    for i in range(out.size(1)):
        total = (out[:, i] @ direction).sum()
        (gradient,) = torch.autograd.grad(total, nudge.zero, retain_graph=True, allow_unused=True)
        if gradient is None:  # nothing comes through at all
            gradient = torch.zeros_like(nudge.zero)
        rows.append(gradient.double().abs().amax(dim=(0, 2)))
    return torch.stack(rows)


def by_change(subject: Subject, view: View, model: nn.Module, tokens: Tensor) -> Tensor:
    """How much changing token j moves output i, (S_out, S)."""
    before = subject.quiet(view, model, tokens)
    other = subject.other(tokens)
    columns = []
    for j in range(tokens.size(1)):
        changed = tokens.clone()
        changed[:, j] = other[:, j]
        after = subject.quiet(view, model, changed)
        columns.append(torch.tensor([gap(before[:, i], after[:, i]) for i in range(before.size(1))]))
    return torch.stack(columns, dim=1).double()
