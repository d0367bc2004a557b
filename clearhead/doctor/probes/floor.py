"""Random tokens cannot be predicted: a loss that falls below their entropy has seen the answer.

A tiny model is trained for two hundred steps on fresh tokens drawn evenly from eight. Whatever it does, it cannot
get below ln 8, unless labels, masks or inputs let the target through. What that means for the loss depends on its
form: a divergence, a smoothed loss or a sum each have a floor of their own, which follows from the form that fits.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.describe import Encoder, EncoderDecoder
from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes.loss import batch_of, described, explain
from clearhead.doctor.subject import Subject

STEPS, KINDS, ROWS, LENGTH = 200, 8, 8, 12


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
        draw = [choices[torch.randint(len(choices), (ROWS, LENGTH), generator=generator)] for _ in range(2)]
        batch = tuple(draw) if isinstance(spec, EncoderDecoder) else (draw[0],)
        loss = subject.loss(model, batch)
        if not torch.isfinite(loss):
            message = f"the loss became {float(loss)} while training on random tokens"
            return [Finding("floor.diverged", ERROR, message, {})]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    reached, least = sum(losses[-20:]) / 20, floor_of_loss(subject, choices)
    foreseen = surprise(subject, model.eval(), choices)
    seen = f"after {STEPS} steps on random tokens"
    if least is not None and reached < least - 0.05 * max(abs(least), 1.0):
        message = f"{seen} the loss is {reached:.2f}, below the {least:.2f} that guessing among them costs"
    elif foreseen < entropy - 0.1:
        message = f"{seen} the cross-entropy of the next token is {foreseen:.2f}, below their entropy of {entropy:.2f}"
    else:
        return []
    evidence = {"loss": reached, "floor": least, "surprise": foreseen, "entropy": entropy}
    return [Finding("floor.beaten", ERROR, f"{message}: the model has seen what it should predict", evidence)]


def floor_of_loss(subject: Subject, choices: Tensor) -> float | None:
    """What this loss costs at best where nothing can be foreseen; None where it is a formula the doctor cannot read."""
    try:
        model = described(subject)
    except NotArmed:
        return math.log(len(choices))
    explained = explain(subject, model, [batch_of(subject, False), batch_of(subject, False, seed=75)])
    return None if explained is None else explained[0].floor(choices, ROWS, LENGTH - 1)


def surprise(subject: Subject, model: nn.Module, choices: Tensor) -> float:
    """The cross-entropy of the next token, from the outputs alone, on tokens the model has not met."""
    generator = torch.Generator().manual_seed(1)
    draw = [choices[torch.randint(len(choices), (64, LENGTH), generator=generator)] for _ in range(2)]
    batch = tuple(draw) if isinstance(subject.spec, EncoderDecoder) else (draw[0],)
    logits = subject.whole(model, batch)[:, :-1].float()
    return float(F.cross_entropy(logits.flatten(0, 1), batch[-1][:, 1:].flatten()))
