"""The cheat-sheet says what a real pass does."""

from typing import Any

import pytest
import torch

from clearhead.cost.account import Size
from clearhead.cost.sheet import sheet
from clearhead.model import PRESETS, ModelConfig, build, configure, trace

# sizes that no two letters share, so that a swapped dimension cannot hide
SIZE = Size(batch=3, length=11, source_length=7)
SMALL: dict[str, Any] = {"vocab_size": 89, "d_model": 40, "heads": 4, "kv_heads": 2, "d_ff": 56}
NUMBERS = {"B": 3, "D": 40, "H": 4, "G": 2, "d": 10, "d/2": 5, "F": 56, "V": 89, "1": 1}


@pytest.mark.parametrize("preset", PRESETS)
def test_letters_stand_for_their_numbers(preset: str) -> None:
    config = configure(preset, **SMALL)
    rows = sheet(config, SIZE)
    for row in rows:
        for letter, size in zip(row.letters, row.sizes, strict=True):
            length = 11
            if config.kind == "encoder-decoder" and (
                row.stack == "encoder"
                or row.module == "encoder.norm"
                or (row.module == "embedding" and "#" not in row.name)  # the first to be embedded is the source
                or (row.module == "cross_attention" and letter == "T")
            ):
                length = 7
            assert size == {**NUMBERS, "S": length, "T": length}[letter], row
        assert row.meaning
        assert row.layers == {"encoder": config.encoder_layers, "decoder": config.decoder_layers, "": 1}[row.stack]


def test_the_sheet_is_the_trace_of_a_real_pass() -> None:
    config = ModelConfig(**SMALL, encoder_layers=2, decoder_layers=2)
    model, inputs = build(config).eval(), SIZE.inputs(config)
    with trace(model) as taken, torch.no_grad():
        model(*inputs, *(torch.ones_like(ids, dtype=torch.bool) for ids in inputs))
    wanted = {
        path.replace(".layers.0.", ".", 1): tuple(tensor.shape)
        for path, tensor in taken.tensors.items()
        if ".layers.1." not in path
    }
    found = {".".join(filter(None, (row.stack, row.module, row.name))): row.sizes for row in sheet(config, SIZE)}
    assert found == wanted


def test_what_is_said_of_a_tensor_is_true_of_this_model() -> None:
    def said(config: ModelConfig) -> dict[tuple[str, str], str]:
        return {(row.module, row.name): row.meaning for row in sheet(config, SIZE)}

    paper, gpt2 = said(configure("base", **SMALL)), said(configure("gpt2", **SMALL))
    assert paper["embedding", "positions"] == "added to the scaled rows"
    assert gpt2["embedding", "positions"] == "added to the rows"
    assert paper["feed_forward_residual", "residual"] == "x + sub-layer(x)"
    assert gpt2["feed_forward_residual", "residual"] == "x + sub-layer(norm(x))"
    alibi = said(configure("base", **SMALL, positions={"kind": "alibi"}))
    assert alibi["self_attention", "scores"] == "q kᵀ / √d − m × distance"
    assert alibi["cross_attention", "scores"] == paper["self_attention", "scores"] == "q kᵀ / √d"


def test_masks_show_where_they_broadcast() -> None:
    masks = {(row.stack, row.module): row.letters for row in sheet(configure("tiny"), SIZE) if row.name == "mask"}
    turned = [row for row in sheet(configure("llama", **SMALL), SIZE) if row.name in ("cos", "sin")]
    assert [row.letters for row in turned] == [("B", "1", "S", "d/2")] * 2
    assert masks == {
        ("encoder", "self_attention"): ("B", "1", "1", "T"),
        ("decoder", "self_attention"): ("B", "1", "S", "T"),
        ("decoder", "cross_attention"): ("B", "1", "1", "T"),
    }
