"""What a model can be asked through: each token input, and the outputs that answer to it.

A causal model has one view, and so has an encoder; an encoder-decoder has its target (causal) and its source. How a
padding mask is handed over is settled here: as an argument, or as the token that the model knows padding by.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.doctor.describe import CausalLM, EncoderDecoder

if TYPE_CHECKING:
    from clearhead.doctor.subject import Subject

TARGET_LENGTH = 7


@dataclass(frozen=True)
class View:
    """One token input of a model and the outputs that answer to it; the other inputs are held still."""

    name: str  # "tokens", "target" or "source"
    causal: bool
    aligned: bool  # output i belongs to input i
    padded: bool  # a padding mask can be given
    call: Callable[..., Any]  # call(forward of a model, tokens, real)

    @property
    def token(self) -> str:
        return "token" if self.name == "tokens" else f"{self.name} token"


def parameters_of(function: Callable[..., Any]) -> int:
    """How many arguments can be given by position."""
    try:
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return 0
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 99
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def make_views(subject: "Subject") -> list[View]:
    """Each token input of the described model."""
    spec, count = subject.spec, parameters_of(subject.spec.forward)
    by_id = spec.pad_by_id

    def hidden(tokens: Tensor, real: Tensor | None, pad: int | None) -> Tensor:
        return tokens if real is None or not by_id else tokens.masked_fill(~real, pad)  # type: ignore[arg-type]

    if isinstance(spec, EncoderDecoder):
        source, target = subject.tokens(1, 9, seed=90), subject.tokens(1, TARGET_LENGTH, seed=91)

        def to_target(call: Any, tokens: Tensor, real: Tensor | None) -> Any:
            fixed = source.expand(tokens.size(0), -1)
            extra = () if real is None or by_id else (torch.ones_like(fixed, dtype=torch.bool), real)
            return call(fixed, hidden(tokens, real, subject.pad), *extra)

        def to_source(call: Any, tokens: Tensor, real: Tensor | None) -> Any:
            fixed = target.expand(tokens.size(0), -1)
            return call(hidden(tokens, real, subject.source_pad), fixed, *(() if real is None or by_id else (real,)))

        return [
            View("target", True, True, count >= 5 or by_id, to_target),
            View("source", False, False, count >= 4 or by_id, to_source),
        ]

    def to_tokens(call: Any, tokens: Tensor, real: Tensor | None) -> Any:
        return call(hidden(tokens, real, subject.pad), *(() if real is None or by_id else (real,)))

    return [View("tokens", isinstance(spec, CausalLM), True, count >= 3 or by_id, to_tokens)]
