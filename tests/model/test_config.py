"""Configurations: presets, changes, and every refusal with both values named."""

import dataclasses

import pytest

import clearhead
from clearhead.model import PRESETS, configure
from tests.model.helpers import config


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_frozen_and_survive_a_round_trip(preset: str) -> None:
    from clearhead.settings import from_dict, to_dict

    choice = configure(preset)
    with pytest.raises(dataclasses.FrozenInstanceError):
        choice.d_model = 3  # type: ignore[misc]
    assert from_dict(clearhead.ModelConfig, to_dict(choice)) == choice
    assert hash(choice) == hash(configure(preset))


def test_defaults_are_the_paper() -> None:
    base = configure("base")
    assert (base.kind, base.d_model, base.heads, base.d_head, base.d_ff) == ("encoder-decoder", 512, 8, 64, 2048)
    assert (base.encoder_layers, base.decoder_layers, base.activation) == (6, 6, "relu")
    assert (base.norm.kind, base.norm.placement, base.norm.final) == ("layer", "post", False)
    assert (base.positions.kind, base.positions.layout, base.positions.base) == ("sinusoidal", "interleaved", 10_000)
    assert (base.embedding.scaled, base.head.tied) == (True, True)
    dropout = base.dropout
    assert (dropout.residual, dropout.embedding, dropout.attention, dropout.hidden) == (0.1, 0.1, 0, 0)
    big = configure("big")
    assert (big.d_model, big.heads, big.d_ff, big.dropout.residual) == (1024, 16, 4096, 0.3)


def test_changes_are_laid_over_the_preset() -> None:
    choice = configure("tiny", vocab_size=500, norm={"placement": "post"}, dropout=0.2)
    assert (choice.vocab_size, choice.d_model, choice.norm.placement) == (500, 128, "post")
    assert (choice.dropout.residual, choice.dropout.embedding, choice.dropout.attention) == (0.2, 0.2, 0)
    assert PRESETS["tiny"]["norm"] == {"placement": "pre"}  # the preset itself stays
    assert configure("gpt2", positions={"kind": "rope"}).positions.max_length is None
    assert configure("gpt2", positions={"base": 5.0}).positions.max_length == 1024
    assert configure("gpt2", positions={"max_length": 1}).positions.max_length == 1
    assert configure("tiny", norm=configure("llama").norm).norm.kind == "rms"


@pytest.mark.parametrize(("placement", "final"), [("pre", True), ("post", False)])
def test_final_norm_follows_the_placement_unless_told(placement: str, final: bool) -> None:
    assert config(norm={"placement": placement}).norm.final is final
    assert config(norm={"placement": placement, "final": not final}).norm.final is not final
    for kind in ("encoder-decoder", "decoder", "encoder"):
        built = clearhead.build(config(kind, norm={"placement": placement, "final": not final}))
        stack = built.encoder if kind == "encoder" else built.decoder
        assert (stack.norm is not None) is not final


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 30, "heads": 4}, "heads must divide d_model: d_model = 30, heads = 4"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads must divide heads: heads = 4, kv_heads = 3"),
        ({"kv_heads": 0}, "kv_heads must divide heads: heads = 4, kv_heads = 0"),
        ({"kv_heads": 8}, "heads = 4, kv_heads = 8"),
        ({"head_dim": 0}, "head_dim must be positive, not 0"),
        ({"heads": 0}, "heads must be positive, not 0"),
        ({"vocab_size": 0}, "vocab_size must be positive, not 0"),
        ({"d_ff": -1}, "d_ff must be positive, not -1"),
        ({"decoder_layers": 0}, "kind = 'decoder' needs decoder_layers > 0, not 0"),
        ({"decoder_layers": 10_001}, "decoder_layers must be at most 10,000, not 10,001"),
        ({"kind": "encoder", "encoder_layers": 10_001}, "encoder_layers must be at most 10,000, not 10,001"),
        ({"window": 0}, "window must be positive, not 0"),
        ({"d_model": 15, "heads": 3}, "'sinusoidal' pairs dimensions: d_model = 15 must be even"),
        ({"d_model": 20, "positions": "rope"}, r"'rope' pairs dimensions: d_model / heads = 5 must be even"),
        ({"positions": {"kind": "learned", "max_length": 0}}, "'learned' needs positions.max_length.*found 0"),
        ({"positions": {"kind": "alibi", "max_length": 9}}, "'alibi' extends to any length: positions.max_length = 9"),
        ({"positions": {"base": 1.0}}, r"positions.base must be above 1, not 1\.0"),
        ({"norm": {"epsilon": 0.0}}, r"norm.epsilon must be positive, not 0\.0"),
        ({"dropout": 1.0}, r"dropout.residual must be at least 0 and below 1, not 1\.0"),
        ({"dropout": {"attention": -0.1}}, "dropout.attention must be at least 0 and below 1, not -0.1"),
        (
            {"head": {"kind": "pooled"}},
            "kind = 'decoder' predicts tokens: head.kind must be 'vocabulary', not 'pooled'",
        ),
        ({"embedding": {"segments": 2}}, "embedding.segments is for kind = 'encoder', not 'decoder'"),
        ({"activation": "gulu"}, "activation = 'gulu' is not one of 'relu', 'gelu'"),
        ({"d_modle": 5}, "unknown key 'd_modle'; did you mean 'd_model'?"),
        ({"norm": {"epsilonn": 5}}, "unknown key 'norm.epsilonn'; did you mean 'epsilon'?"),
        ({"d_model": 24.5}, r"d_model must be a whole number, not 24\.5"),
    ],
    ids=str,
)
def test_refusals(changes: dict, message: str) -> None:
    with pytest.raises(clearhead.InputError, match=message):
        config(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": {"kind": "vocabulary"}}, "'encoder' sees the whole sequence: head.kind must be .* not 'vocabulary'"),
        ({"head": {"kind": "tokens"}}, "head.kind = 'tokens' needs head.classes > 0, not 0"),
        ({"encoder_layers": 0}, "kind = 'encoder' needs encoder_layers > 0, not 0"),
    ],
)
def test_encoder_refusals(changes: dict, message: str) -> None:
    with pytest.raises(clearhead.InputError, match=message):
        config("encoder", **changes)


def test_unknown_preset_and_missing_size() -> None:
    with pytest.raises(clearhead.InputError, match=r"unknown preset 'gtp2'; did you mean 'gpt2'?"):
        configure("gtp2")
    with pytest.raises(clearhead.InputError, match="missing key 'vocab_size'"):
        configure()
