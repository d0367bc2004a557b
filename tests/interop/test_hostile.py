"""Foreign models with hostile sizes and holes: refused by name, before any memory is taken for them."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import InputError
from clearhead.interop import families, llama2c, llmviz
from clearhead.interop.folder import read_safetensors

LLAMA: dict[str, Any] = {
    "vocab_size": 8,
    "hidden_size": 4,
    "num_attention_heads": 2,
    "intermediate_size": 4,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
STATE = {"model.embed_tokens.weight": torch.zeros(8, 4), "model.norm.weight": torch.ones(4)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 1_000_000_000}, r"embed_tokens.weight': found shape \(8, 4\), wanted \(8, 1000000000\)"),
        ({"hidden_size": 1 << 62}, "no such model can be built"),
        ({"num_hidden_layers": 9_000}, "2 tensors cannot be 9,000 layers"),
        ({"num_hidden_layers": 10**9}, "decoder_layers must be at most"),
        ({"hidden_size": None}, "the key 'hidden_size' is missing"),
        ({"num_attention_heads": 0}, "cannot be read: integer division"),
        ({"hidden_size": "wide"}, "hidden_size must be a whole number, not 'wide'"),
    ],
)
def test_hostile_configurations_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        families.read("llama", {**LLAMA, **changes}, STATE)


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="the key 'intermediate_size' is missing"):
        families.read("llama", {key: value for key, value in LLAMA.items() if key != "intermediate_size"}, STATE)
    with pytest.raises(
        InputError, match=r"missing tensor 'model\.embed_tokens\.weight' of shape \(8, 4\), and 10 more"
    ):
        families.read("llama", LLAMA, {"model.norm.weight": torch.ones(4)})


def test_integers_are_no_weights() -> None:
    path = "model.layers.0.self_attn."
    state = {
        **STATE,
        "model.embed_tokens.weight": torch.zeros(8, 4, dtype=torch.long),
        "lm_head.weight": torch.zeros(8, 4),
    }
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        state[f"{path}{name}.weight"] = torch.zeros(4, 4)
    for name in ("gate_proj", "up_proj", "down_proj"):
        state[f"model.layers.0.mlp.{name}.weight"] = torch.zeros(4, 4)
    for name in ("input_layernorm", "post_attention_layernorm"):
        state[f"model.layers.0.{name}.weight"] = torch.ones(4)
    with pytest.raises(InputError, match=r"embed_tokens\.weight': found torch\.int64, and floats are wanted"):
        families.read("llama", LLAMA, state)


def test_flat_files_and_folders_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(struct.pack("<7i", 1 << 30, 4, 1, 1 << 29, 1, 8, 8))
    for path in (tmp_path / "x.bin", tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=path.name):
            llama2c.read(path)


def test_a_pipe_among_the_weights_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors: it is a pipe"):
        read_safetensors(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "[]", '{"config": 1, "a": []}', json.dumps({"config": {}, "a": 1}), "9" * 5000]
)
def test_hostile_json_is_refused_by_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=r"x\.json"):
        llmviz.read(tmp_path / "x.json")
