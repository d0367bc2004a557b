"""Greedy generation picks, at every step, the token that the full pass over all tokens so far finds most likely.

It does so for prompts of any length, gives as many tokens as it was asked for, leaves the prompt as it was, and finds
nothing of an earlier request.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, NOTE, WARNING, Finding, NotArmed
from clearhead.doctor.generating import Choices, behind, lively, never_said, unlike
from clearhead.doctor.probes import show
from clearhead.doctor.raised import Raised
from clearhead.doctor.subject import Subject
from clearhead.doctor.watch import Watch
from clearhead.errors import InputError

COUNT = 6
ROUNDED = 0.1  # of the spread of the logits: what a cache kept in 16 bits may move them by


def attempt(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...], count: int = COUNT) -> Tensor:
    """What generate() makes of a prompt: prompt and continuation, (B, S + count)."""
    spec: Any = subject.spec
    with torch.no_grad():
        tokens = subject.call("generate", lambda model, *given: spec.generate(model, *given, count), model, *inputs)
    try:
        tokens = torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"generate() returned {type(tokens).__name__}, wanted (B, S + count) tokens") from None
    tokens = tokens[None] if tokens.dim() == 1 and inputs[-1].size(0) == 1 else tokens
    if tokens.dim() != 2 or tokens.size(0) != inputs[-1].size(0) or tokens.is_floating_point():
        raise InputError(
            f"generate() returned shape {tuple(tokens.shape)} of {tokens.dtype}, wanted (B, S + count) tokens"
        )
    if tokens.size(1) <= count and not torch.equal(tokens[:, : inputs[-1].size(1)], inputs[-1]):
        tokens = torch.cat([inputs[-1], tokens], dim=1)
    return tokens


def run(subject: Subject) -> list[Finding]:
    if getattr(subject.spec, "generate", None) is None:
        raise NotArmed("no generate() described")
    model = subject.fresh()
    problem: Raised | None = None
    # a translation begins with one token; and some loops take one row at a time
    length = 1 if isinstance(subject.spec, EncoderDecoder) else max(5, subject.prefix)
    for rows in (2, 1):
        inputs = subject.inputs(rows, max(5, length), seed=14)
        inputs = (*inputs[:-1], inputs[-1][:, :length].contiguous())
        given = tuple(x.clone() for x in inputs)
        try:
            tokens = attempt(subject, model, given)
        except Raised as error:
            problem = problem or error
            continue
        changed = not all(torch.equal(x, y) for x, y in zip(inputs, given, strict=True))
        findings = judge(subject, model, inputs, tokens)
        if changed and not findings:
            findings.append(Finding("generate.changed", ERROR, "generate() changes the prompt it was given", {}))
        findings = findings or asked_again(subject, model, inputs, tokens) or by_luck(subject, model, inputs)
        if problem is not None:
            message = f"generate() takes one row at a time: {problem.told()}"
            findings.append(Finding("generate.rows", NOTE, message, {}, (problem.where,) if problem.where else ()))
        return findings
    assert problem is not None
    raise problem


def by_luck(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Finding]:
    """The right tokens are chosen from the right logits; where they are not, some other prompt shows it."""
    prompt = inputs[-1].size(1)
    with Choices(inputs[-1].size(0), subject.vocab) as choices:
        tokens = attempt(subject, model, inputs)
    chosen = choices.logits(tokens.size(1) - prompt)
    if chosen is None or not subject.exact():
        return []
    exact = 1e-6 if subject.tolerance(subject.views[0]) < 1e-6 * subject.spread(subject.views[0]) else 1e-3
    for step, found in enumerate(chosen):
        full = subject.whole(model, (*inputs[:-1], tokens[:, : prompt + step]))[:, -1].double()
        size = max(unlike(theirs, ours) for ours, theirs in zip(found, full, strict=True))
        if size <= exact or (size <= ROUNDED and narrow(subject, model, inputs)):
            continue
        for seed in range(1, 25):
            other, prompts = lively(subject, seed), subject.inputs(inputs[-1].size(0), max(5, prompt), seed=14 + seed)
            prompts = (*prompts[:-1], prompts[-1][:, :prompt].contiguous())
            if wrong := judge(subject, other, prompts, attempt(subject, other, prompts)):
                return wrong
        message = (
            f"after {prompt + step} tokens the logits that generate() chooses from are {show(size)} of their spread "
            "away from those of the full pass, though it happens to choose the same"
        )
        return [Finding("generate.not-greedy", WARNING, message, {"first": step == 0, "step": step})]
    return []


def narrow(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...]) -> bool:
    """Does generate() compute or keep something in 16 bits? Near ties may then tip."""
    with Watch() as watch:
        attempt(subject, model, inputs)
    return bool(watch.seen.dtypes & {torch.float16, torch.bfloat16})


def kept(what: str) -> Finding:
    message = f"after a prompt, generate() continues {what} differently than if it came first: something is kept"
    return Finding("generate.remembers", ERROR, message, {})


def asked_again(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...], tokens: Tensor) -> list[Finding]:
    """Other prompts, the first one again, and other numbers of tokens."""
    prompt, rows = inputs[-1].size(1), inputs[-1].size(0)
    lengths = (1,) if isinstance(subject.spec, EncoderDecoder) else (max(1, subject.prefix), subject.prefix + 9)
    for length in lengths:
        others = subject.inputs(rows, max(9, length), seed=15)
        others = (*others[:-1], others[-1][:, :length].contiguous())
        try:
            found = judge(subject, model, others, attempt(subject, model, others))
            if found and not judge(subject, other := subject.fresh(), others, attempt(subject, other, others)):
                return [kept("another prompt")]
        except Raised:
            continue
        if found:
            return [kept("the first one again")] if otherwise(subject, model, inputs, tokens) else found
    if isinstance(subject.spec, EncoderDecoder) and (found := from_longer_start(subject, model)):
        return found
    again = attempt(subject, model, inputs)
    if not torch.equal(again, tokens):
        return [kept("the first one again")]
    counts = {count: attempt(subject, model, inputs, count).size(1) - prompt for count in (2, 3)}
    counts[COUNT] = tokens.size(1) - prompt
    more = all(made > count for count, made in counts.items())
    if more or all(made == count - 1 for count, made in counts.items()):
        message = f"asked for {COUNT} tokens, generate() gives {counts[COUNT]}; asked for 2, {counts[2]}"
        return [Finding("generate.count", ERROR if more else WARNING, message, {"more": more})]
    return []


def otherwise(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...], tokens: Tensor) -> bool:
    """Is a prompt that was continued before continued in another way now?"""
    try:
        return not torch.equal(attempt(subject, model, inputs), tokens)
    except Raised:
        return True


def from_longer_start(subject: Subject, model: nn.Module) -> list[Finding]:
    """A translation may be continued; a loop that takes its start for one token reads or feeds the wrong one."""
    inputs = subject.inputs(1, 5, seed=16)
    inputs = (*inputs[:-1], inputs[-1][:, :3].contiguous())
    try:
        tokens = attempt(subject, model, inputs)
        if tokens.size(1) != 3 + COUNT or judge(subject, model, inputs, tokens[:, :3]):
            return []  # it takes no such start
        wrong = check(subject, model, inputs, tokens)
    except Raised:
        return []
    return [replace(one, severity=WARNING, message=f"from a start of three tokens: {one.message}") for one in wrong]


def judge(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...], tokens: Tensor) -> list[Finding]:
    if not torch.equal(tokens[:, : inputs[-1].size(1)], inputs[-1]):
        return [Finding("generate.prompt", ERROR, "generate() does not begin with the prompt", {})]
    return check(subject, model, inputs, tokens)


def check(subject: Subject, model: nn.Module, inputs: tuple[Tensor, ...], tokens: Tensor) -> list[Finding]:
    for t in range(inputs[-1].size(1), tokens.size(1)):
        logits = subject.whole(model, (*inputs[:-1], tokens[:, :t]))[:, -1]
        size = float(behind(logits, tokens[:, t], []).max())
        if size > subject.tolerance(subject.views[0]):
            size = float(behind(logits, tokens[:, t], never_said(subject, model, inputs)).max())
        near = size <= ROUNDED * float(logits.std())
        if size > subject.tolerance(subject.views[0]) and not (near and narrow(subject, model, inputs)):
            first = t == inputs[-1].size(1)
            message = (
                f"after {t} tokens generate() picked a token whose logit is {show(size)} below the highest "
                "of the full pass"
            )
            return [Finding("generate.not-greedy", ERROR, message, {"first": first, "step": t - inputs[-1].size(1)})]
    return []
