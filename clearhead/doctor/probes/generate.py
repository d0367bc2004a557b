"""Greedy generation picks, at every step, the token that the full pass over all tokens so far finds most likely."""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, NOTE, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject
from clearhead.errors import InputError

COUNT = 6


def attempt(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """What generate() makes of a prompt: prompt and continuation, (B, S + count)."""
    spec: Any = subject.spec
    with torch.no_grad():
        tokens = subject.call("generate", lambda model, *given: spec.generate(model, *given, COUNT), model, *inputs)
    try:
        tokens = torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"generate() returned {type(tokens).__name__}, wanted (B, S + count) tokens") from None
    tokens = tokens[None] if tokens.dim() == 1 and inputs[-1].size(0) == 1 else tokens
    if tokens.dim() != 2 or tokens.size(0) != inputs[-1].size(0) or tokens.is_floating_point():
        raise InputError(
            f"generate() returned shape {tuple(tokens.shape)} of {tokens.dtype}, wanted (B, S + count) tokens"
        )
    if tokens.size(1) <= COUNT and not torch.equal(tokens[:, : inputs[-1].size(1)], inputs[-1]):
        tokens = torch.cat([inputs[-1], tokens], dim=1)
    return tokens


def run(subject: Subject) -> list[Finding]:
    if getattr(subject.spec, "generate", None) is None:
        raise NotArmed("no generate() described")
    model = subject.fresh()
    problem: Raised | None = None
    # a translation begins with one token; and some loops take one row at a time
    length = 1 if isinstance(subject.spec, EncoderDecoder) else 5
    for rows in (2, 1):
        inputs = subject.inputs(rows, 5, seed=14)
        inputs = (*inputs[:-1], inputs[-1][:, :length])
        try:
            tokens = attempt(subject, model, inputs)
        except Raised as error:
            problem = problem or error
            continue
        findings = judge(subject, model, inputs, tokens)
        if problem is not None:
            message = f"generate() takes one row at a time: {problem.told()}"
            findings.append(Finding("generate.rows", NOTE, message, {}, (problem.where,) if problem.where else ()))
        return findings
    assert problem is not None
    raise problem


def judge(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...], tokens: Tensor) -> list[Finding]:
    if not torch.equal(tokens[:, : inputs[-1].size(1)], inputs[-1]):
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
