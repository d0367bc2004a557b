"""Greedy generation picks, at every step, the token that the full pass over all tokens so far finds most likely."""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject

COUNT = 6


def run(subject: Subject) -> list[Finding]:
    spec: Any = subject.spec
    if getattr(spec, "generate", None) is None:
        raise NotArmed("no generate() described")
    model = subject.fresh()
    inputs = subject.inputs(2, 5, seed=14)
    prompt = inputs[-1]
    given = inputs if isinstance(spec, EncoderDecoder) else (prompt,)
    with torch.no_grad():
        tokens = spec.generate(model, *given, COUNT)
    if not isinstance(tokens, Tensor) or tokens.dim() != 2:
        raise NotArmed(f"generate() returned {type(tokens).__name__}, wanted (B, S + count) tokens")
    if tokens.size(1) <= COUNT:
        tokens = torch.cat([prompt, tokens], dim=1)
    if not torch.equal(tokens[:, : prompt.size(1)], prompt):
        return [Finding("generate.prompt", ERROR, "generate() does not begin with the prompt", {})]
    return check(subject, model, inputs, tokens)


def check(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...], tokens: Tensor) -> list[Finding]:
    for t in range(inputs[-1].size(1), tokens.size(1)):
        logits = subject.whole(model, (*inputs[:-1], tokens[:, :t]))[:, -1]
        chosen = logits.gather(1, tokens[:, t : t + 1]).squeeze(1)
        behind = float((logits.amax(dim=-1) - chosen).max())
        if behind > subject.tolerance(subject.views[0]):
            first = t == inputs[-1].size(1)
            message = (
                f"after {t} tokens generate() picked a token whose logit is {show(behind)} below the highest "
                "of the full pass"
            )
            return [Finding("generate.not-greedy", ERROR, message, {"first": first, "step": t - inputs[-1].size(1)})]
    return []
