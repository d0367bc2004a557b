"""Models of different shapes and equal size: the width that gives a number of parameters."""

from typing import Any

from clearhead.errors import InputError
from clearhead.lab.training import small
from clearhead.model import ModelConfig, count_parameters


def of_size(parameters: int, vocab_size: int, ratio: float = 4.0, step: int = 8, **changes: Any) -> ModelConfig:
    """The decoder whose size comes closest: its width a multiple of `step`, its feed-forward network `ratio` times as
    wide, give or take the few units that make up the rest."""

    def shaped(width: int, inner: int) -> ModelConfig:
        return small(vocab_size, kind="decoder", d_model=width, d_ff=inner, **changes)

    best: tuple[int, ModelConfig] | None = None
    for width in range(step, 4096, step):
        config = shaped(width, max(1, round(ratio * width)))
        gap = parameters - count_parameters(config)
        inner = config.d_ff + round(gap / (config.decoder_layers * (2 * width + 1)))  # what makes up for the gap
        if inner >= 1 and (best is None or abs(gap) < best[0]):
            best = abs(gap), shaped(width, inner)
        if gap < 0:
            break
    if best is None:
        raise InputError(f"no decoder with {parameters:,} parameters has a vocabulary of {vocab_size:,} and this shape")
    return best[1]
