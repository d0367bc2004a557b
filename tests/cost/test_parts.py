"""What is trained stands in the row that names it, and watching ends. Which part computes, test_account.py asks."""

from typing import Any

import pytest
import torch

from clearhead.cost.account import parameters
from clearhead.cost.parts import Part, watch
from clearhead.model import build, configure


@pytest.mark.parametrize(
    ("preset", "changes", "wanted"),
    [
        ("llama", {"decoder_layers": 3}, {Part("decoder", "feed-forward", "gate"): 3 * 512 * 1376}),
        ("llama", {"decoder_layers": 3}, {Part("decoder", "norms"): (2 * 3 + 1) * 512}),
        ("gpt2", {"decoder_layers": 1}, {Part("", "positions"): 1024 * 768, Part("", "embedding"): 50_257 * 768}),
        ("bert-base", {"encoder_layers": 1}, {Part("", "norms"): 2 * 768, Part("", "head"): 768 * 768 + 768}),
        ("bert-base", {"encoder_layers": 1, "head": {"kind": "masked"}}, {Part("", "norms"): 2 * 2 * 768}),
        ("bert-base", {"head": {"kind": "tokens", "classes": 7}}, {Part("", "head"): 768 * 7 + 7}),
    ],
)
def test_parameters_stand_in_the_row_that_names_them(
    preset: str, changes: dict[str, Any], wanted: dict[Part, int]
) -> None:
    with torch.device("meta"):
        found = parameters(build(configure(preset, **changes)))
    assert {part: found[part] for part in wanted} == wanted


def test_nothing_of_the_watching_stays_behind() -> None:
    model = build(configure(vocab_size=7, kind="decoder", d_model=8, heads=2, d_ff=16, decoder_layers=1))
    told: list[Part | None] = []
    with watch(model, told.append):
        model(torch.arange(5)[None])
    assert told
    told.clear()
    model(torch.arange(5)[None]).sum().backward()
    assert not told
