"""Clearhead: the Transformer of "Attention Is All You Need", from scratch and in the clear.

Names are loaded on first use, so that `import clearhead` costs nothing and only what computes imports torch.
"""

from typing import TYPE_CHECKING

from clearhead.lazy import on_first_use

if TYPE_CHECKING:  # the names of _HOME once more, because a type checker does not follow __getattr__
    from clearhead.decoding.load import load as load
    from clearhead.errors import InputError as InputError
    from clearhead.interop.export import export as export
    from clearhead.interop.incoming import from_pretrained as from_pretrained
    from clearhead.model import KVCache as KVCache
    from clearhead.model import ModelConfig as ModelConfig
    from clearhead.model import build as build
    from clearhead.model import configure as configure
    from clearhead.model import trace as trace

__version__ = "0.1.0"

_HOME = {
    "InputError": "errors",
    "KVCache": "model",
    "ModelConfig": "model",
    "build": "model",
    "configure": "model",
    "export": "interop.export",
    "from_pretrained": "interop.incoming",
    "load": "decoding.load",
    "trace": "model",
}

__all__ = ["__version__", *_HOME]
__getattr__ = on_first_use(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
