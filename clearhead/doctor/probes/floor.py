"""Random tokens cannot be predicted: a loss that falls below their entropy has seen the answer.

A tiny model is trained for two hundred steps on fresh tokens drawn evenly from eight. Whatever it does, it cannot
get below ln 8, unless labels, masks or inputs let the target through.
"""

import math
from typing import Any

import torch

from clearhead.doctor.describe import Encoder, EncoderDecoder
from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.subject import Subject

STEPS, KINDS = 200, 8


def run(subject: Subject) -> list[Finding]:
    spec = subject.spec
    if spec.loss is None:
        raise NotArmed("no loss() described")
    if isinstance(spec, Encoder):
        raise NotArmed("an encoder's labels are not its inputs' successors")
    if subject.fixed:
        raise NotArmed("build gives the same model every time, and the doctor trains only what it builds")
    model = subject.raw(dtype=torch.float32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    choices = subject.tokens(1, 64, seed=220).unique()[:KINDS]
    entropy = math.log(len(choices))
    losses = []
    torch.manual_seed(0)
    for _ in range(STEPS):
        draw = [choices[torch.randint(len(choices), (8, 12), generator=generator)] for _ in range(2)]
        batch = tuple(draw) if isinstance(spec, EncoderDecoder) else (draw[0],)
        result: Any = spec.loss(model, *batch)
        loss = getattr(result, "loss", result)
        loss = loss[0] if isinstance(loss, tuple | list) else loss
        if not torch.isfinite(loss):
            message = f"the loss became {float(loss)} while training on random tokens"
            return [Finding("floor.diverged", ERROR, message, {})]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    reached = sum(losses[-20:]) / 20
    if reached >= entropy - 0.1:
        return []
    message = (
        f"after {STEPS} steps on random tokens the loss is {reached:.2f}, below their entropy of {entropy:.2f}: "
        "the model has seen what it should predict"
    )
    return [Finding("floor.beaten", ERROR, message, {"loss": reached, "entropy": entropy})]
