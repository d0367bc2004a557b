"""The same logits and gradients as the models of `transformers`, with the same random weights; no download."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from clearhead.interop import families
from clearhead.interop.weights import to_ours
from clearhead.model.positions import sinusoids
from tests.model.helpers import all_close, close, gradients, lengths_to_real, normal, tokens

V, B, S = 31, 3, 11
GPT2 = {
    "vocab_size": V,
    "n_embd": 20,
    "n_head": 5,
    "n_layer": 2,
    "n_positions": 16,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
BERT = {
    "vocab_size": V,
    "hidden_size": 20,
    "num_attention_heads": 5,
    "num_hidden_layers": 2,
    "intermediate_size": 28,
    "max_position_embeddings": 16,
}
LLAMA = {
    "vocab_size": V,
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_hidden_layers": 2,
    "intermediate_size": 28,
    "max_position_embeddings": 16,
}
MARIAN = {
    "vocab_size": V,
    "d_model": 20,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 5,
    "encoder_ffn_dim": 28,
    "decoder_ffn_dim": 28,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
}


STRETCHED = {"rope_theta": 50.0, "factor": 4.0}


def theirs_of(kind: str, family: str, **settings: Any) -> Any:
    """A small model of `transformers` with every weight disturbed, norms and biases too; in float64 where it can."""
    base = {"GPT2": GPT2, "Bert": BERT, "Marian": MARIAN}.get(family, LLAMA)
    settings = {"num_key_value_heads": 6, **settings} if base is LLAMA else settings
    configuration = getattr(transformers, f"{family}Config")(**{**base, **settings}, attn_implementation="eager")
    torch.manual_seed(1)
    model = getattr(transformers, kind)(configuration).eval()
    if base is not LLAMA:  # whose norms and softmax compute in float32 whatever they are given
        model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn_like(parameter))
        if family == "Marian":
            model.final_logits_bias.normal_()
            exact = sinusoids(model.config.max_position_embeddings, model.config.d_model, layout="split")
            for stack in (model.model.encoder, model.model.decoder):
                table = stack.embed_positions.weight
                close(table, exact, 1e-7)  # the same table, but rounded to float32 when it was made
                table.copy_(exact)
    return model


def ours_of(theirs: Any) -> Any:
    return families.read(theirs.config.model_type, theirs.config.to_dict(), theirs.state_dict()).eval()


def compare(ours: Any, theirs: Any, found: Tensor, wanted: Tensor, real: Tensor, rounding: float = 1e-11) -> None:
    """Logits at real tokens, and the gradient of a random sum of them in every weight that both train."""
    close(found[real], wanted[real], rounding)
    weight = normal(*wanted[real].shape, seed=3)
    for out in (found, wanted):
        (out[real] * weight).sum().backward()
    family = families.FAMILIES[theirs.config.model_type]
    named = family.named({n: p.grad for n, p in theirs.named_parameters() if p.grad is not None})
    mine, their = gradients(ours), to_ours(named, family.rows(ours.config))
    assert mine.keys() - their.keys() <= {"output.bias"}  # Marian's is no parameter over there
    all_close({name: mine[name] for name in their}, their, rounding)


def padded(side: str) -> tuple[Tensor, Tensor]:
    """Tokens without the id 0, which some of them treat apart, and which of them are real."""
    return tokens(B, S, vocabulary=V - 2) + 2, lengths_to_real([S, S - 4, 1], S, side)


def positions(real: Tensor) -> Tensor:
    return (real.long().cumsum(-1) - 1).clamp(min=0)


DECODERS: dict[str, tuple[Callable[[], Any], float]] = {
    "gpt2": (lambda: theirs_of("GPT2LMHeadModel", "GPT2"), 1e-11),
    "gpt2 untied, relu": (
        lambda: theirs_of("GPT2LMHeadModel", "GPT2", tie_word_embeddings=False, activation_function="relu", n_inner=13),
        1e-11,
    ),
    "llama": (lambda: theirs_of("LlamaForCausalLM", "Llama"), 1e-5),
    "llama grouped": (lambda: theirs_of("LlamaForCausalLM", "Llama", num_key_value_heads=2), 1e-5),
    "llama one key head, tied, other base": (
        lambda: theirs_of(
            "LlamaForCausalLM",
            "Llama",
            num_key_value_heads=1,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        ),
        1e-5,
    ),
    "llama with biases and heads of another width": (
        lambda: theirs_of("LlamaForCausalLM", "Llama", head_dim=6, attention_bias=True, mlp_bias=True),
        1e-5,
    ),
    "llama stretched linearly": (
        lambda: theirs_of("LlamaForCausalLM", "Llama", rope_parameters={**STRETCHED, "rope_type": "linear"}),
        1e-5,
    ),
    "llama stretched as llama 3.1": (
        lambda: theirs_of(
            "LlamaForCausalLM",
            "Llama",
            num_key_value_heads=2,
            rope_parameters={
                **STRETCHED,
                "rope_type": "llama3",
                "low_freq_factor": 1.0,
                "high_freq_factor": 2.5,
                "original_max_position_embeddings": 8,
            },
        ),
        1e-5,
    ),
    "mistral": (lambda: theirs_of("MistralForCausalLM", "Mistral", sliding_window=3, num_key_value_heads=2), 1e-5),
    "mistral without a window": (lambda: theirs_of("MistralForCausalLM", "Mistral", sliding_window=None), 1e-5),
    "qwen2": (lambda: theirs_of("Qwen2ForCausalLM", "Qwen2", num_key_value_heads=2), 1e-5),
    "qwen2 with a window": (
        lambda: theirs_of("Qwen2ForCausalLM", "Qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0),
        1e-5,
    ),
    "qwen3": (lambda: theirs_of("Qwen3ForCausalLM", "Qwen3", num_key_value_heads=2, head_dim=6), 1e-5),
}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name: str, side: str) -> None:
    make, rounding = DECODERS[name]
    theirs = make()
    ours = ours_of(theirs)
    ids, real = padded(side)
    wanted = theirs(ids, attention_mask=real.long(), position_ids=positions(real)).logits
    compare(ours, theirs, ours(ids, real), wanted, real, rounding)
    close(ours(ids), theirs(ids).logits, rounding)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForTokenClassification"])
def test_bert_tokens(kind: str, side: str) -> None:
    theirs = theirs_of(kind, "Bert")
    if kind == "BertModel":
        theirs.pooler = None
    ours = ours_of(theirs)
    ids, real = padded(side)
    segments = tokens(B, S, seed=5, vocabulary=2)
    wanted = theirs(ids, attention_mask=real.long(), token_type_ids=segments, position_ids=positions(real))[0]
    compare(ours, theirs, ours(ids, real, segments), wanted, real)


@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification"])
def test_bert_pooled(kind: str) -> None:
    theirs = theirs_of(kind, "Bert", num_labels=7)
    ours = ours_of(theirs)
    ids, real = padded("right")
    output = theirs(ids, attention_mask=real.long())
    wanted = output.pooler_output if kind == "BertModel" else output.logits
    compare(ours, theirs, ours(ids, real), wanted, torch.ones(B, dtype=torch.bool))


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_function": "swish", "scale_embedding": True},
        {"activation_function": "gelu"},
        {"activation_function": "relu", "share_encoder_decoder_embeddings": False, "decoder_vocab_size": V},
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": V, "tie_word_embeddings": False},
    ],
)
def test_marian(changes: dict[str, Any]) -> None:
    theirs = theirs_of("MarianMTModel", "Marian", **changes)
    ours = ours_of(theirs)
    source, real = padded("right")
    target, written = padded("right")
    target = target[:, :7].flip(0)
    written = written[:, :7]
    wanted = theirs(
        source, attention_mask=real.long(), decoder_input_ids=target, decoder_attention_mask=written.long()
    ).logits
    compare(ours, theirs, ours(source, target, real, written), wanted, written)


@pytest.mark.parametrize(
    ("kind", "family", "also"),
    [
        # keys that published files have, some for years without meaning
        ("GPT2LMHeadModel", "GPT2", {"n_ctx": 16, "_num_labels": 1, "id2label": {"0": "A"}}),
        ("BertModel", "Bert", {"gradient_checkpointing": False, "pooler_type": "first_token_transform"}),
        ("LlamaForCausalLM", "Llama", {"pretraining_tp": 1, "is_llama_config": True, "rope_interleaved": False}),
        (
            "MarianMTModel",
            "Marian",
            {"add_bias_logits": False, "add_final_layer_norm": False, "classif_dropout": 0.0, "num_hidden_layers": 2,
             "extra_pos_embeddings": 31, "normalize_before": False, "normalize_embedding": False, "num_beams": 4,
             "static_position_embeddings": True, "bad_words_ids": [[0]], "force_bos_token_to_be_generated": False},
        ),
    ],
)  # fmt: skip
def test_what_published_configurations_also_say(kind: str, family: str, also: dict[str, Any]) -> None:
    theirs = theirs_of(kind, family)
    plain = ours_of(theirs).config
    known = {**theirs.config.to_dict(), **also}
    assert families.read(theirs.config.model_type, known, theirs.state_dict()).config == plain
    with pytest.raises(families.InputError, match="is_decoder = True is not supported, only False"):
        families.read(theirs.config.model_type, {**known, "is_decoder": True}, theirs.state_dict())


def test_refuses_what_our_models_cannot_follow() -> None:
    theirs = theirs_of("LlamaForCausalLM", "Llama")
    for changes, message in (
        ({"sliding_window": 4}, "sliding_window = 4 is not supported, only None"),
        ({"attention_bias": True}, "attention_bias = True and mlp_bias = False"),
        ({"logit_scale": 2.0}, r"logit_scale = 2\.0 is a key that is not known here"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type = 'yarn' is not one of default, linear, llama3"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "rope_parameters.low_freq_factor' is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_parameters and rope_scaling are given and differ"),
        ({"rope_theta": 5.0}, r"rope_theta = 10000\.0 and rope_theta = 5\.0 are given"),
    ):
        with pytest.raises(families.InputError, match=message):
            families.read("llama", {**theirs.config.to_dict(), **changes}, theirs.state_dict())
    theirs = theirs_of("GPT2LMHeadModel", "GPT2", activation_function="tanh")
    with pytest.raises(families.InputError, match="activation_function = 'tanh' is not one of relu, gelu"):
        ours_of(theirs)
    with pytest.raises(families.InputError, match="model type 'mamba' is not one of gpt2"):
        families.read("mamba", {}, {})
    theirs = theirs_of("Qwen2ForCausalLM", "Qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1)
    with pytest.raises(
        families.InputError, match="layer_types: full_attention, sliding_attention; our models have one"
    ):
        ours_of(theirs)
