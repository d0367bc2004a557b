"""Small models with strong opinions: random weights alone give nearly even distributions, which prove little."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clearhead.model import Transformer, build, configure

Maker = Callable[..., Transformer]


def opinionated(
    seed: int = 0, preset: str = "tiny", sharpness: float = 3.0, ending: float = 2.0, **changes: Any
) -> Transformer:
    """A tiny model in float64 whose matrices are scaled up."""
    sizes = {
        "head": {"bias": True},
        "vocab_size": 20,
        "d_model": 16,
        "heads": 2,
        "d_ff": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
    }
    config = configure(preset, **{**sizes, **changes})
    torch.manual_seed(seed)
    model = build(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(sharpness)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
        if model.config.kind != "encoder" and model.output.bias is not None:
            model.output.bias[2] += ending  # the end token's
    return model


@pytest.fixture(scope="session")
def make() -> Maker:
    return opinionated
