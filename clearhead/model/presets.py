"""Configurations with well-known names, and `configure`, which changes them."""

from dataclasses import is_dataclass
from typing import Any

from clearhead.errors import InputError
from clearhead.model.config import ModelConfig
from clearhead.settings import from_dict, merge, nearest, to_dict

_DECODER = {"kind": "decoder", "embedding": {"scaled": False}, "norm": {"placement": "pre"}}

PRESETS: dict[str, dict[str, Any]] = {
    # the paper's two models, table 3; vocabulary as in section 5.1
    "base": {"vocab_size": 37_000},
    "big": {"vocab_size": 37_000, "d_model": 1024, "heads": 16, "d_ff": 4096, "dropout": {"residual": 0.3}},
    # for two CPU cores; pre-norm because it trains without care
    "tiny": {
        "vocab_size": 10_000,
        "d_model": 128,
        "heads": 4,
        "d_ff": 256,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "norm": {"placement": "pre"},
    },
    "gpt2": merge(
        _DECODER,
        {
            "vocab_size": 50_257,
            "d_model": 768,
            "heads": 12,
            "d_ff": 3072,
            "decoder_layers": 12,
            "activation": "gelu_tanh",
            "positions": {"kind": "learned", "max_length": 1024},
            "dropout": {"attention": 0.1},
            "init": "gpt2",
        },
    ),
    "bert-base": {
        "kind": "encoder",
        "vocab_size": 30_522,
        "d_model": 768,
        "heads": 12,
        "d_ff": 3072,
        "encoder_layers": 12,
        "activation": "gelu",
        "embedding": {"scaled": False, "norm": True, "segments": 2},
        "positions": {"kind": "learned", "max_length": 512},
        "norm": {"epsilon": 1e-12},
        "dropout": {"attention": 0.1},
        "head": {"kind": "pooled"},
        "init": "gpt2",
    },
    # a small model of Llama's kind: rotary positions, RMS norm, SwiGLU, grouped-query heads, no biases
    "llama": merge(
        _DECODER,
        {
            "vocab_size": 32_000,
            "d_model": 512,
            "heads": 8,
            "kv_heads": 4,
            "d_ff": 1376,
            "decoder_layers": 8,
            "activation": "swiglu",
            "bias": False,
            "positions": {"kind": "rope", "layout": "split"},
            "norm": {"kind": "rms"},
            "dropout": {"residual": 0.0, "embedding": 0.0},
            "init": "gpt2",
        },
    ),
}


def configure(name: str | None = None, /, **changes: Any) -> ModelConfig:
    """A preset with changes: `configure("tiny", vocab_size=500, norm={"placement": "post"})`.

    `dropout=0.2` is short for the paper's one rate: sub-layer outputs and embeddings.
    """
    if name is not None and name not in PRESETS:
        raise InputError(f"unknown preset {name!r}{nearest(name, list(PRESETS))}")
    changes = {key: to_dict(value) if is_dataclass(value) else value for key, value in changes.items()}
    rate = changes.get("dropout")
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        changes["dropout"] = {"residual": rate, "embedding": rate}
    base = dict(PRESETS[name]) if name else {}
    if changes.get("positions", {}).get("kind", "learned") != "learned":
        # the preset's table length means nothing for positions without a table
        base["positions"] = {key: value for key, value in base.get("positions", {}).items() if key != "max_length"}
    return from_dict(ModelConfig, merge(base, changes))
