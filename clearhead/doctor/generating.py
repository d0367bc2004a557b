"""Greedy continuations as the description's `generate` gives them, whatever shape it prefers."""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import NotArmed
from clearhead.doctor.subject import Subject

Inputs = tuple[Tensor, ...]


def continued(
    subject: Subject, model: nn.Module, inputs: Inputs, count: int, *real: Tensor, whole: bool = False
) -> Tensor:
    """The prompt and `count` tokens after it, (B, S + count); fewer where the model stops early.

    `inputs` are (tokens,) or (source, start), `real` a padding mask for a `generate` that takes one. A generator that
    takes one row at a time gets them one at a time; with `whole` it is given the batch or nothing.
    """
    spec: Any = subject.spec
    if getattr(spec, "generate", None) is None:
        raise NotArmed("no generate() described")
    inputs = tuple(x.contiguous() for x in inputs)
    given = inputs if isinstance(spec, EncoderDecoder) else inputs[-1:]
    try:
        tokens = spec.generate(model, *given, count, *real)
    except Exception:
        if whole or inputs[-1].size(0) == 1:
            raise
        rows = range(inputs[-1].size(0))
        parts = [continued(subject, model, pick(inputs, i), count, *pick(real, i), whole=True) for i in rows]
        if len({part.size(1) for part in parts}) > 1:
            raise
        return torch.cat(parts)
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.size(0) != inputs[-1].size(0):
        raise NotArmed(f"generate() returned {type(tokens).__name__}, wanted (B, S + count) tokens")
    prompt = inputs[-1]
    starts = tokens.size(1) >= prompt.size(1) and torch.equal(tokens[:, : prompt.size(1)], prompt)
    return tokens if starts else torch.cat([prompt, tokens], dim=1)


def prompts(subject: Subject, batch: int, length: int, seed: int) -> Inputs:
    """What generate() starts from: (tokens,), or (source, start) with the one token that a translation starts with."""
    inputs = subject.inputs(batch, length, seed)
    return (inputs[0], inputs[1][:, :1].contiguous()) if isinstance(subject.spec, EncoderDecoder) else inputs


def pick(inputs: Inputs, row: int) -> Inputs:
    return tuple(x[row : row + 1] for x in inputs)
