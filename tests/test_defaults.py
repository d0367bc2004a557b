"""What a recipe leaves out means what it meant when the recipe was written: defaults and presets are promises.

A run keeps its resolved settings, but a recipe, a script and a page of documentation do not. A new setting needs no
line here; changing an old one does, and a line in the changelog.
"""

from dataclasses import fields
from typing import Any

import pytest
import transformers

from clearhead.data.settings import DataSettings
from clearhead.decoding.beam import BeamSearch
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.sample import Sampling
from clearhead.decoding_settings import DecodingSettings
from clearhead.model import configure
from clearhead.model.config import Dropout, Embedding, Head, ModelConfig, Norm, Positions
from clearhead.settings import to_dict
from clearhead.training.config import TrainingSettings
from clearhead.training.loop import Progress, Update

DEFAULTS: dict[type, dict[str, Any]] = {
    TrainingSettings: {
        "steps": 10_000, "seed": 1, "max_tokens": 4096, "accumulate": 1, "label_smoothing": 0.0, "clip": 1.0,
        "optimizer": "adam", "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9, "weight_decay": 0.0, "schedule": "noam",
        "warmup": 4000, "factor": None, "peak": None, "final": 0.0, "cooldown": 0, "precision": "float32",
        "compile": False, "device": "auto", "threads": None, "parallel": "ddp", "log_every": 10, "validate_every": 500,
        "checkpoint_every": None, "keep_last": 3, "keep_best": 1, "patience": None, "average": 0, "average_of": "last",
        "samples": 4, "tensorboard": False,
    },
    DataSettings: {
        "task": None, "examples": 50_000, "held_out": 1_000, "symbols": 20, "shortest": 1, "longest": 12,
        "locales": None, "max_length": 256, "documents": "none", "context": 256, "validation_share": 0.1,
    },
    DecodingSettings: {
        "beam_size": 4, "length_penalty": 0.6, "length_form": "gnmt", "refill": False, "max_extra": 50,
        "max_source": 1024, "max_tokens": 200, "temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
        "min_length": 0, "no_repeat_ngram": 0, "repetition_penalty": 1.0,
    },
    BeamSearch: {"beam_size": 4, "length_penalty": 0.6, "length_form": "gnmt", "n_best": 1, "refill": False},
    Sampling: {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0},
    Constraints: {"min_length": 0, "no_repeat_ngram": 0, "repetition_penalty": 1.0, "forbidden": ()},
    ModelConfig: {
        "kind": "encoder-decoder", "d_model": 512, "heads": 8, "kv_heads": None, "d_ff": 2048, "encoder_layers": 6,
        "decoder_layers": 6, "activation": "relu", "bias": True, "window": None, "init": "xavier", "kernels": "fused",
    },
    Embedding: {"scaled": True, "norm": False, "segments": 0},
    Positions: {"kind": "sinusoidal", "layout": "interleaved", "base": 10_000.0, "max_length": None},
    Norm: {"kind": "layer", "placement": "post", "epsilon": 1e-5, "final": None},
    Dropout: {"residual": 0.1, "embedding": 0.1, "attention": 0.0, "hidden": 0.0},
    Head: {"kind": "vocabulary", "tied": True, "bias": False, "classes": 0},
    Progress: {
        "step": 0, "epoch": 0, "batch": 0, "best": None, "best_step": 0, "stale": 0, "scale": 65_536.0, "steady": 0,
        "seconds": 0.0, "loss_sum": 0.0, "loss_count": 0,
    },
    Update: {"rate": 0.0, "tokens": 0, "skipped": False},
}  # fmt: skip


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_defaults_stay(kind: type) -> None:
    found = {field.name: field.default for field in fields(kind)}
    for name, value in DEFAULTS[kind].items():
        assert (found[name], type(found[name])) == (value, type(value)), name


def test_gpt2_and_bert_are_as_published() -> None:
    """By the configurations of `transformers`, whose defaults are the smallest published models."""
    theirs, ours = transformers.GPT2Config(), configure("gpt2")
    assert (ours.kind, ours.vocab_size, ours.d_model) == ("decoder", theirs.vocab_size, theirs.n_embd)
    assert (ours.heads, ours.decoder_layers, ours.d_ff) == (theirs.n_head, theirs.n_layer, 4 * theirs.n_embd)
    assert (ours.positions.kind, ours.positions.max_length) == ("learned", theirs.n_positions)
    rates = (theirs.resid_pdrop, theirs.embd_pdrop, theirs.attn_pdrop)
    assert (ours.dropout.residual, ours.dropout.embedding, ours.dropout.attention) == rates
    assert (ours.activation, theirs.activation_function) == ("gelu_tanh", "gelu_new")
    assert (ours.norm.placement, ours.norm.epsilon, ours.embedding.scaled) == ("pre", theirs.layer_norm_epsilon, False)
    assert (ours.bias, ours.head.tied, ours.init) == (True, True, "gpt2")

    bert, ours = transformers.BertConfig(), configure("bert-base")
    assert (ours.kind, ours.vocab_size, ours.d_model) == ("encoder", bert.vocab_size, bert.hidden_size)
    assert (ours.heads, ours.encoder_layers) == (bert.num_attention_heads, bert.num_hidden_layers)
    assert (ours.d_ff, ours.activation) == (bert.intermediate_size, bert.hidden_act)
    assert (ours.positions.kind, ours.positions.max_length) == ("learned", bert.max_position_embeddings)
    rates = (bert.hidden_dropout_prob, bert.hidden_dropout_prob, bert.attention_probs_dropout_prob)
    assert (ours.dropout.residual, ours.dropout.embedding, ours.dropout.attention) == rates
    assert to_dict(ours.embedding) == {"scaled": False, "norm": True, "segments": bert.type_vocab_size}
    assert (ours.norm.placement, ours.norm.epsilon) == ("post", bert.layer_norm_eps)
    assert (ours.head.kind, ours.head.classes, ours.init) == ("pooled", 0, "gpt2")


def test_llama_and_tiny_stay_what_they_are() -> None:
    ours = configure("llama")
    assert (ours.kind, ours.vocab_size, ours.d_model, ours.heads, ours.kv_heads) == ("decoder", 32_000, 512, 8, 4)
    assert (ours.d_ff, ours.decoder_layers, ours.activation, ours.bias) == (1376, 8, "swiglu", False)
    assert (ours.positions.kind, ours.positions.layout, ours.norm.kind, ours.norm.placement) == (
        "rope", "split", "rms", "pre",
    )  # fmt: skip
    assert to_dict(ours.dropout) == {"residual": 0.0, "embedding": 0.0, "attention": 0.0, "hidden": 0.0}
    assert (ours.embedding.scaled, ours.init) == (False, "gpt2")
    tiny = configure("tiny")
    assert (tiny.kind, tiny.vocab_size, tiny.d_model, tiny.heads) == ("encoder-decoder", 10_000, 128, 4)
    assert (tiny.d_ff, tiny.encoder_layers, tiny.decoder_layers, tiny.norm.placement) == (256, 4, 4, "pre")
