"""Every family in both directions: what was read is written again, bit for bit, and loaded by their own classes."""

from typing import Any

import pytest
import torch
import transformers

from clearhead.errors import InputError
from clearhead.interop import family
from clearhead.interop.families import FAMILIES, of_type
from clearhead.model import build, configure
from tests.interop.test_transformers import V, ours_of, padded, theirs_of
from tests.model.helpers import close

APART = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": V}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 50.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0}
FORMS: list[tuple[str, str, dict[str, Any]]] = [
    ("GPT2LMHeadModel", "GPT2", {}),
    ("GPT2LMHeadModel", "GPT2", {"tie_word_embeddings": False, "n_inner": 12}),
    ("BertModel", "Bert", {}),
    ("BertForMaskedLM", "Bert", {}),
    ("BertForSequenceClassification", "Bert", {"num_labels": 7}),
    ("BertForTokenClassification", "Bert", {"num_labels": 5}),
    ("LlamaForCausalLM", "Llama", {"num_key_value_heads": 2, "head_dim": 6}),
    ("LlamaForCausalLM", "Llama", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    ("LlamaForCausalLM", "Llama", {"rope_parameters": {**LLAMA3, "original_max_position_embeddings": 8}}),
    ("LlamaForCausalLM", "Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 9.0, "factor": 2.0}}),
    ("MistralForCausalLM", "Mistral", {"sliding_window": 3, "num_key_value_heads": 2}),
    ("Qwen2ForCausalLM", "Qwen2", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}),
    ("Qwen2ForCausalLM", "Qwen2", {"tie_word_embeddings": True}),
    ("Qwen3ForCausalLM", "Qwen3", {"head_dim": 6}),
    ("MarianMTModel", "Marian", {"scale_embedding": True}),
    ("MarianMTModel", "Marian", {**APART, "decoder_vocab_size": 19}),
    ("MarianMTModel", "Marian", {**APART, "tie_word_embeddings": False}),
]


def saved(theirs: Any) -> dict[str, Any]:
    """The tensors that `save_pretrained` writes: a shared one once, sinusoids not at all."""
    state = theirs.state_dict()
    shared = {name for name, _ in theirs.named_parameters()} | {"final_logits_bias"}
    return {name: tensor for name, tensor in state.items() if name in shared and "embed_positions" not in name}


@pytest.mark.parametrize(("kind", "name", "changes"), FORMS)
def test_what_is_read_is_written_again(kind: str, name: str, changes: dict[str, Any]) -> None:
    theirs = theirs_of(kind, name, **changes)
    ours, one = ours_of(theirs), of_type(theirs.config.model_type)
    settings, tensors = family.write(one, ours.config, dict(ours.named_parameters()))
    before = saved(theirs)
    assert settings["architectures"] == [kind]
    assert tensors.keys() == before.keys()
    assert all(torch.equal(tensors[key], before[key]) for key in before)
    # and what was written says the same as what was read
    assert family.flat(family.describe(one, settings, one.named(tensors))) == family.flat(ours.config)
    marks = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1} if name == "Marian" else {}
    again = getattr(transformers, kind)(type(theirs.config)(**settings, **marks, attn_implementation="eager"))
    again = again.eval().to(next(theirs.parameters()).dtype)
    assert not again.load_state_dict(tensors, strict=False).unexpected_keys
    again.tie_weights()
    ids, real = padded("right")
    both = {"decoder_input_ids": ids.flip(0) % 19} if name == "Marian" else {}
    close(again(ids, attention_mask=real.long(), **both)[0], theirs(ids, attention_mask=real.long(), **both)[0], 1e-6)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("marian", {"encoder_layers": 2, "decoder_layers": 1}),
        ("marian", {"encoder_layers": 1, "decoder_layers": 2, "head": {"tied": False}, "source_vocab_size": 17}),
        ("llama", {"positions": {"layout": "interleaved"}, "heads": 4, "kv_heads": 2}),
        ("qwen3", {"positions": {"layout": "interleaved"}, "heads": 4, "kv_heads": 2, "qk_norm": True}),
        ("qwen2", {"qkv_bias": False}),
        ("gpt2", {"bias": False, "positions": {"max_length": 32}}),
    ],
)
def test_another_layout_of_the_same_model(model_type: str, changes: dict[str, Any]) -> None:
    """Interleaved pairs and missing biases are laid out as theirs are, and the outputs stay."""
    preset = {"marian": "base", "gpt2": "gpt2"}.get(model_type, "llama")
    config = configure(
        preset, **{"vocab_size": V, "d_model": 24, "heads": 4, "d_ff": 20, "decoder_layers": 2, **changes}
    )
    torch.manual_seed(3)
    model = build(config).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    one = FAMILIES[model_type]
    settings, tensors = family.write(one, config, {k: v.detach() for k, v in model.named_parameters()})
    back = family.read(one, settings, tensors).eval()
    ids, real = padded("right")
    arguments = (ids % 17, ids.flip(0), real) if model_type == "marian" else (ids, real)
    close(back(*arguments)[real], model(*arguments)[real], 1e-12)


def test_what_they_cannot_do_is_named() -> None:
    config = configure("tiny", vocab_size=V)
    with pytest.raises(
        InputError, match=r"no 'marian' is like this model: .*norm\.placement = 'pre', theirs has 'post'"
    ):
        family.write(FAMILIES["marian"], config, dict(build(config).named_parameters()))
    rope = configure("gpt2", vocab_size=V, d_model=24, heads=4, decoder_layers=1, positions={"kind": "rope"})
    assert family.unlike(FAMILIES["gpt2"], rope)["positions.kind"] == ("rope", "learned")
