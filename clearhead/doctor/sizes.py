"""Which sizes the doctor asks a builder for, and by which names builders take them.

Tiny sizes make probes fast; distinct ones make a mixed-up axis visible. Batches have 2 to 5 rows, sequences 7 or 11
tokens, heads are 3 (or 6 over 3 key/value heads), so that no two axes agree by accident.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

NAMES: dict[str, tuple[str, ...]] = {
    "vocab": (
        "vocab", "vocab_size", "n_vocab", "num_tokens", "num_embeddings", "ntoken", "ntokens", "vocabulary",
        "src_vocab", "tgt_vocab", "src_vocab_size", "tgt_vocab_size", "source_vocab", "target_vocab",
    ),
    "width": (
        "width", "d_model", "dim", "n_embd", "embed_dim", "hidden_size", "emb_dim", "model_dim", "embedding_dim",
        "d_embed", "hidden_dim", "emb_size",
    ),
    "heads": ("heads", "n_heads", "n_head", "num_heads", "nhead", "nheads", "num_attention_heads", "h"),
    "kv_heads": ("kv_heads", "n_kv_heads", "num_kv_heads", "num_key_value_heads", "n_kv_head", "n_query_groups"),
    "layers": (
        "layers", "n_layers", "n_layer", "num_layers", "nlayers", "depth", "num_hidden_layers", "num_blocks",
        "encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers", "N",
    ),
    "max_length": (
        "max_length", "max_len", "max_seq_len", "max_seq_length", "block_size", "context_length", "n_positions",
        "max_position_embeddings", "seq_len", "ctx_len", "n_ctx", "context_size", "maxlen",
    ),
    "dropout": (
        "dropout", "p", "p_dropout", "dropout_p", "dropout_rate", "drop", "drop_rate", "attn_dropout", "resid_dropout",
    ),
}  # fmt: skip

TINY: dict[str, Any] = {"vocab": 61, "width": 24, "heads": 3, "layers": 2, "max_length": 640, "dropout": 0.1}
GROUPED: dict[str, Any] = {**TINY, "width": 48, "heads": 6, "kv_heads": 3}
EVEN: dict[str, Any] = {**TINY, "width": 32, "heads": 4, "kv_heads": 2}


def taken(build: Callable[..., Any]) -> dict[str, list[str]]:
    """Which of our sizes the builder takes, and under which of its own parameter names."""
    try:
        parameters = inspect.signature(build).parameters
    except (TypeError, ValueError):
        return {}
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        named = {size: [name for name in names if name in parameters] for size, names in NAMES.items()}
        return {size: names or [size] for size, names in named.items()}
    found = {size: [name for name in names if name in parameters] for size, names in NAMES.items()}
    return {size: names for size, names in found.items() if names}


def candidates(build: Callable[..., Any], declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sizes to try in turn; the builder's own defaults come last."""
    sizes = taken(build)
    first = GROUPED if "kv_heads" in sizes else TINY
    tries = [{**sizes_, **declared} for sizes_ in (first, EVEN)]
    return [*({size: value for size, value in option.items() if size in sizes} for option in tries), dict(declared)]


def arguments(build: Callable[..., Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Our sizes under the builder's names; what it does not take by our names goes through as it is."""
    names = taken(build)
    given: dict[str, Any] = {}
    for size, value in sizes.items():
        for name in names.get(size, [size]):
            given[name] = value
    return given
