"""What the names in a constructor or a configuration mean: a size the doctor may choose, or a value to start from.

People write n_embd, d_model, model_dimension, emb_dim: the words differ, their parts hardly do. A name that says
nothing gets no value; whoever asks is told which one line would help.
"""

import re
from typing import Any

# the doctor's sizes by the parts of a name; the first rule that fits is taken, so the special come before the general
SIZES = (
    ("kv_heads", r"(kv|key_value)_?heads?|num_kv|n_kv|query_groups|kv_groups"),
    ("head_width", r"head_?(dim|size|width)|(d|dim)_?head|^d_?(k|v|q|kv|qk)$|^(q|k|v|qk|kv)_?(dim|channels)$|d_key"),
    ("dropout", r"drop|^p$"),
    ("vocab", r"vocab(?!_?(path|file|min))|voc_?size|(^|_)n_?tokens?$|num_?tokens|num_embeddings|dict_?size|n_words"),
    ("layers", r"layers?$|(^|_)n_?layers?|num_?layers?|depth|(^|_)n_?blocks?|num_?blocks?|^N$|num_?stacks?|layers_"),
    ("inner", r"ffn|(d|dim)_?ff|feed_?forward|intermediate|d_?hid\b|nhid|mlp_?(dim|hidden|size)|filter_size|inner"),
    ("heads", r"heads?$|num_?heads|^h$|attention_heads"),
    (
        "max_length",
        r"max_?(seq|len|pos|tok|context|token)|block_?size|context|(^|_)n_?positions?|seq(uence)?_?len|ctx|window_len|"
        r"position_embeddings|num_positions|max_sequence|(src|tgt|trg|enc|dec)_?len",
    ),
    (
        "width",
        r"d_?model|^d_?m$|emb(ed|edding)?s?_?(dim|size|width|features|vec)|(^|_)n_?emb|hidden_?(size|dim|units)|"
        r"model_?(dim|size|width)|width|^dim$|^d$|word_vec|embed_proj_dim|emsize|ninp|(^|_)n_?state$|(^|_)d_?emb|^emb$|^hidden$|^channels$|^embed$",
    ),
)  # fmt: skip
# sizes that follow from others, as code
DERIVED = {"head_width": "width // heads", "inner": "4 * width"}

# values that most models take for granted; None of them changes what is asked of the model
VALUES: tuple[tuple[str, Any], ...] = (
    (r"pad", 0),
    (r"bos|sos|start_token|start_id", 1),
    (r"eos|end_token|end_id", 2),
    (r"mask_(token|id|idx)", 3),
    (r"device", "cpu"),
    (r"model_type|preset|pretrained|checkpoint", None),
    (r"eps", 1e-5),
    (r"theta|rope_base|rotary_base|^base$", 10000.0),
    (r"init(ializer)?_?(range|std)|^std$", 0.02),
    (r"qkv_bias|use_flash|flash|compile|log_|verbose|debug|gradient_checkpoint", False),
    (r"bias|norm_first|pre_?norm|batch_first|causal", True),
    (r"tie|share|weight_tying", False),
    (r"act(ivation)?(_fn|_function)?$", "gelu"),
    (r"n_?segments?|num_?segments?|type_vocab|num_types", 2),
    (r"expansion|ratio|multiplier|mult$|factor", 4),
    (r"multiple_of", 8),
    (r"max_?batch", 8),
    (r"experts_per|top_?k|active", 2),
    (r"experts", 4),
)


def size(name: str) -> str | None:
    """Which of the doctor's sizes (or of those that follow from them) this name means."""
    plain = name if name == "N" else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    for meaning, pattern in SIZES:
        if re.search(pattern, plain):
            return meaning
    return None


def code(meaning: str) -> str:
    """A size as it is written in a builder."""
    return DERIVED.get(meaning, meaning)


def value(name: str) -> tuple[bool, Any]:
    """(True, what to begin with) where the name tells, else (False, None)."""
    for pattern, guess in VALUES:
        if re.search(pattern, name.lower()):
            return True, guess
    return False, None


def is_padding(name: str) -> bool:
    """Is this the id of the padding token?"""
    return bool(re.search(r"pad", name.lower())) and not re.search(r"left|right|side|vocab|mask|multiple", name.lower())
