"""nano-gpt-sort: a real model with the activations of one pass stored beside it."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.interop import llmviz
from clearhead.model.attention import merge_heads
from tests.model.helpers import close

FIRST = "decoder.layers.0."
STORED = {
    "tok_emb": "embedding.tokens",
    "pos_emb": "embedding.positions",
    "x": "embedding.embedding",
    "ln1": FIRST + "self_attention_residual.norm.norm",
    "q": FIRST + "self_attention.q",
    "k": FIRST + "self_attention.k",
    "v": FIRST + "self_attention.v",
    "attSm": FIRST + "self_attention.weights",
    "yProj": FIRST + "self_attention.output",
    "attnResid": FIRST + "self_attention_residual.residual",
    "ln2": FIRST + "feed_forward_residual.norm.norm",
    "gelu": FIRST + "feed_forward.hidden",
    "mlp": FIRST + "feed_forward.output",
    "mlpResid": FIRST + "feed_forward_residual.residual",
    "block0": FIRST + "feed_forward_residual.residual",
    "block1": "decoder.layers.1.feed_forward_residual.residual",
    "block2": "decoder.layers.2.feed_forward_residual.residual",
    "ln_f": "decoder.norm.norm",
    "lm_head": "output.logits",
}


@pytest.fixture(scope="module")
def sorter(data: Path) -> Any:
    return llmviz.read(data / "nano-gpt-sort" / "gpt-nano-sort-model.json").eval()


def test_reproduces_the_stored_activations(sorter: Any, data: Path) -> None:
    _, stored = llmviz.read_tensors(data / "nano-gpt-sort" / "gpt-nano-sort-t0-partials.json")
    with torch.no_grad(), clearhead.trace(sorter) as seen:
        logits = sorter(stored["idx"].long())
    for theirs, ours in STORED.items():
        close(seen[ours], stored[theirs], 1e-5, theirs)
    close(merge_heads(seen[FIRST + "self_attention.context"]), stored["y"], 1e-5)
    scores, mask = seen[FIRST + "self_attention.scores"], seen[FIRST + "self_attention.mask"]
    close(scores.masked_fill(~mask, float("-inf")), stored["att"], 1e-5)
    close(logits.softmax(-1), stored["probs"], 1e-5)
    with torch.no_grad():
        close(sorter(stored["idx"].long()), stored["lm_head"], 1e-5)  # untraced: the fused kernels


def test_sorts_every_input(sorter: Any) -> None:
    letters = torch.tensor(list(itertools.product(range(3), repeat=6)))
    cache = clearhead.KVCache(sorter.config, len(letters))
    answer, step = [], letters
    with torch.no_grad():
        for _ in range(6):
            step = sorter(step, cache=cache)[:, -1:].argmax(-1)
            answer.append(step)
    assert torch.equal(torch.cat(answer, 1), letters.sort(1).values)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"config": {}, "x": 3}',
        '{"config": {}, "x": {"shape": [2], "dtype": "torch.int8", "data": ""}}',
    ],
)
def test_refuses_other_files(content: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(content)
    with pytest.raises(clearhead.InputError, match=r"model\.json: not a model of llm-viz"):
        llmviz.read_tensors(path)


def test_names_a_tensor_that_is_missing(data: Path, tmp_path: Path) -> None:
    content = json.loads((data / "nano-gpt-sort" / "gpt-nano-sort-model.json").read_text())
    del content["transformer.h.1.ln_2.bias"]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(clearhead.InputError, match=r"missing tensor .transformer\.h\.1\.ln_2\.bias. of shape \(48,\)"):
        llmviz.read(path)
