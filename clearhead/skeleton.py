"""A model of shapes without contents: what a configuration asks for, known before any memory is taken for it."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from clearhead.errors import InputError
from clearhead.model import ModelConfig, Transformer, build

_FILLING = frozenset({"uniform_", "normal_", "zero_", "fill_"})


class _Unfilled(TorchFunctionMode):
    """Parameters stay as they are made. Without contents there is nothing to fill, but torch would load half a second's
    worth of modules to find that out."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if getattr(func, "__name__", "") in _FILLING:
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)


def skeleton(config: ModelConfig) -> Transformer:
    """The model of a configuration on the device `meta`; sizes that no tensor can have are refused."""
    try:
        with torch.device("meta"), _Unfilled():
            return build(config)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise InputError(f"no such model can be built: {str(error).splitlines()[0]}") from None
