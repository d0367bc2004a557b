"""Clearhead: the Transformer of "Attention Is All You Need", from scratch and in the clear.

Names are loaded on first use, so that `import clearhead` costs nothing and only what computes imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the names of _HOME once more, because a type checker does not follow __getattr__
    from clearhead.decoding.load import load as load
    from clearhead.errors import InputError as InputError
    from clearhead.model import KVCache as KVCache
    from clearhead.model import ModelConfig as ModelConfig
    from clearhead.model import build as build
    from clearhead.model import configure as configure
    from clearhead.model import trace as trace

__version__ = "0.1.0"

_HOME = {
    "InputError": "clearhead.errors",
    "KVCache": "clearhead.model",
    "ModelConfig": "clearhead.model",
    "build": "clearhead.model",
    "configure": "clearhead.model",
    "load": "clearhead.decoding.load",
    "trace": "clearhead.model",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'clearhead' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value  # so that a submodule of the same name cannot take its place
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
