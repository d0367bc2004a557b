"""Shifted targets, and the cross-entropy with label smoothing."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import Bug, Draw, Exercise, Sizes, Trial
from clearhead.learn.mistakes.loss import MEAN, MISTAKES

PAD = 3  # not 0, so that token 0 is an ordinary one
SIZES = {"B": 3, "S": 4, "V": 7, "padded": 1}


def target(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    return (draw.integers(0, sizes.V, sizes.B, sizes.S + 1),)


def logits_and_labels(sizes: Sizes, draw: Draw, scale: float = 1.0, pad: int = PAD) -> tuple[Tensor, Tensor]:
    """Rows of S, 2 and S labels; among them token 0, which is real unless it is the padding."""
    if sizes.V < 5:
        raise ValueError("there is no room for the padding beside other tokens")
    logits, labels = draw.normal(sizes.B, sizes.S, sizes.V, scale=scale), draw.integers(0, sizes.V, sizes.B, sizes.S)
    labels[labels == pad] = 4
    labels[0, 0] = 0 if pad else 1
    if sizes.padded and sizes.S > 2:
        labels[sizes.B // 2, 2:] = pad
    return logits, labels


def plain(sizes: Sizes, draw: Draw) -> tuple[Any, ...]:
    return *logits_and_labels(sizes, draw), PAD, 0.0


def smoothed(sizes: Sizes, draw: Draw) -> tuple[Any, ...]:
    return *logits_and_labels(sizes, draw), PAD, 0.1


def padding_is_0(sizes: Sizes, draw: Draw) -> tuple[Any, ...]:
    return *logits_and_labels(sizes, draw, pad=0), 0, 0.1


def large(sizes: Sizes, draw: Draw) -> tuple[Any, ...]:
    """Logits of hundreds, so that some probabilities are too small for a number."""
    return *logits_and_labels(sizes, draw, scale=400.0), PAD, 0.1


def picture(parts: Mapping[str, Any]) -> str:
    """What a smoothed target asks for: the slope of the loss by the logits says where it wants each probability."""
    logits = torch.zeros(1, 1, 7, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(parts["loss"](logits, torch.tensor([[2]]), PAD, 0.1), logits)
    wanted = 1 / 7 - slope[0, 0]  # the softmax's own share minus the slope is the target
    return "\n".join(f"token {i}  {'█' * round(40 * share.item())} {share:.3f}" for i, share in enumerate(wanted))


EXERCISE = Exercise(
    name="loss",
    question="How wrong was it?",
    about="The decoder reads the target up to some token and should say the next one, at all places at once; so what "
    "it reads and what it should say are the same tokens, one apart. The loss is the mean of −log p of the right "
    "token, over all labels that are no padding. Label smoothing asks for a little of every token: a share ε is "
    "spread evenly over all V of them, and the right one gets the rest as well.",
    section="sections 3.1 and 5.4",
    shapes="""
    shift: target (B, S + 1), beginning with a start token -> inputs (B, S), labels (B, S)
    loss: logits (B, S, V), labels (B, S), pad, smoothing ε -> one number, a tensor
    The target of a label: 1 − ε on it, and ε/V on every one of the V tokens.
    The padding is the token `pad`, which need not be 0. The mean is over all labels that are not `pad`, of all rows
    together. Logits may be large.
    """,
    parts=("shift", "loss"),
    trials=(
        Trial("shift", target, sizes={"B": 2, "S": 4, "V": 9}, gradients=False),
        Trial("shift", target, sizes={"B": 3, "S": 3, "V": 9}, gradients=False),
        Trial("loss", plain, sizes=SIZES, what="without smoothing"),
        Trial("loss", smoothed, sizes=SIZES, what="with smoothing"),
        Trial("loss", padding_is_0, sizes=SIZES, what="where the padding is token 0"),
        Trial("loss", smoothed, sizes={**SIZES, "B": 4, "S": 4, "V": 8}, what="with as many rows as places"),
        Trial("loss", large, sizes=SIZES, what="logits of hundreds", kind="unstable", gradients=False),
    ),
    mistakes=MISTAKES,
    hints=(
        "What should be said after the start token? And of how many labels is it the mean?",
        "log p (B, S, V); that of the right token (B, S), by gather or an index; the labels that count (B, S).",
        "`target[:, :-1], target[:, 1:]`; `losses = -((1 - ε) * right + ε * log_p.mean(-1))`; "
        "`losses[labels != pad].mean()`",
    ),
    after="An untrained model can now be told how wrong it is. What smoothing by 0.1 asks of seven tokens, where "
    "token 2 is right:",
    lab="label-smoothing",
    ours="clearhead/training/loss.py",
    bug=Bug(
        "loss",
        ((MEAN, "((losses * (labels != pad)).sum(1) / (labels != pad).sum(1)).mean()"),),
        "loss(torch.zeros(1, 3, 5), torch.tensor([[1, 2, 3]]), pad=3)  # log 5 = 1.609, as it should be",
        "each row's mean was taken first, so tokens of short rows counted more; with equal rows nobody would notice",
    ),
    picture=picture,
)
