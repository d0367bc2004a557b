"""The doctor: probes for bugs that do not crash, in anyone's PyTorch Transformer.

    from clearhead import doctor

    spec = doctor.CausalLM(build=MyModel, forward=lambda model, tokens: model(tokens))
    print(doctor.check(spec))

It needs only torch and knows nothing of Clearhead's own models. Names are loaded on first use.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "CausalLM": "describe",
    "Encoder": "describe",
    "EncoderDecoder": "describe",
    "Reference": "describe",
    "check": "examine",
    "parametrize": "pytest_entry",
    "Report": "finding",
    "Finding": "finding",
    "Cause": "finding",
    "from_torch": "ready",
    "from_transformers": "ready",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'clearhead.doctor' has no attribute {name!r}")
    return getattr(import_module(f"clearhead.doctor.{_HOME[name]}"), name)
