"""onnxruntime writes what we write, token for token, from the graphs that are exported to it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearhead
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.scoring import right_pad
from clearhead.interop.export import export
from clearhead.model.positions import Table
from tests.interop.export.runs import LEARNED, LLAMA, POST_NORM, TEXTS, TOLERANCE, run_of

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
SMALL: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}


def readme_program(folder: Path) -> dict[str, Any]:
    """What the program in the README defines, once it has run."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0].replace("DIR", str(folder))
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def same_continuations(run: Path, folder: Path) -> None:
    export(run, folder, "onnx")
    program, loaded = readme_program(folder), clearhead.load(run)
    wanted = loaded.generate(TEXTS, temperature=0)
    assert [program["generate"](text) for text in TEXTS] == [one.text for one in wanted]
    # all prompts at once, padded on the left, and then the tokens written, as one piece
    prompts = [loaded.prompt(text) for text in TEXTS]
    longest, config = max(map(len, prompts)), loaded.model.config
    tokens = np.array([[0] * (longest - len(ids)) + ids for ids in prompts])
    real = np.array([[False] * (longest - len(ids)) + [True] * len(ids) for ids in prompts])
    past = np.zeros((config.decoder_layers, len(TEXTS), config.key_value_heads, 0, config.d_head), np.float32)
    inputs = {"tokens": tokens, "real": real, "past_keys": past, "past_values": past}
    logits, keys, values = program["model"].run(None, inputs)
    found = [one.tokens[0] if one.tokens else 2 for one in wanted]
    logits[..., [0, 1]] = -np.inf
    assert logits[:, -1].argmax(-1).tolist() == found
    for text, row in zip(TEXTS, range(len(TEXTS)), strict=True):
        ours = loaded.score([text])[0].log_probs
        seen = longest - len(prompts[row])
        theirs = log_softmax(program["model"].run(None, inputs)[0][row, seen:-1])
        picked = [theirs[place, token] for place, token in enumerate(prompts[row][1:])]
        assert picked == pytest.approx(ours[: len(picked)], abs=TOLERANCE)
    assert keys.shape == values.shape == (*past.shape[:3], longest, config.d_head)


def log_softmax(logits: Any) -> Any:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def same_translations(run: Path, folder: Path) -> None:
    export(run, folder, "onnx")
    program, loaded = readme_program(folder), clearhead.load(run)
    wanted = loaded.translate(TEXTS, beam_size=1)
    assert [program["translate"](text) for text in TEXTS] == [one.text for one in wanted]
    # a batch of unequal sources, all targets in one piece
    tokens, real = right_pad([loaded.source(text)[0] for text in TEXTS], loaded.device)
    written = [[1, *one.tokens] for one in wanted]
    target, _ = right_pad(written, loaded.device)
    sources = {"source": tokens.numpy(), "source_real": np.ones(tokens.shape, bool) if real is None else real.numpy()}
    memory = dict(zip(("memory_keys", "memory_values"), program["encoder"].run(None, sources), strict=True))
    config = loaded.model.config
    past = np.zeros((config.decoder_layers, len(TEXTS), config.key_value_heads, 0, config.d_head), np.float32)
    inputs = {"target": target.numpy(), "source_real": sources["source_real"], **memory}
    logits = program["decoder"].run(None, {**inputs, "past_keys": past, "past_values": past})[0]
    for row, one in enumerate(wanted):
        theirs = log_softmax(logits[row])
        picked = [theirs[place, token] for place, token in enumerate(one.tokens)]
        assert picked == pytest.approx(one.log_probs[: len(picked)], abs=TOLERANCE)


def no_tensor_is_fake(loaded: LoadedModel) -> bool:
    return all(
        type(part.rows).__name__ in ("Tensor", "NoneType") for part in loaded.model.modules() if isinstance(part, Table)
    )


def test_llama(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "decoder", **{**LLAMA, **SMALL, "kv_heads": 2})
    same_continuations(run, tmp_path / "out")
    assert no_tensor_is_fake(clearhead.load(run))


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {**LEARNED, "activation": "gelu_tanh"},
        {"positions": {"kind": "alibi"}, "window": 4},
        {**POST_NORM, "head": {"tied": False, "bias": False}, "bias": False},
    ],
    ids=["learned", "alibi in a window", "sinusoids"],
)
def test_other_language_models(changes: dict[str, Any], tmp_path: Path) -> None:
    same_continuations(run_of(tmp_path / "run", "decoder", **changes), tmp_path / "out")


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {**POST_NORM, "positions": {"layout": "split"}, "activation": "gelu"},
        {"positions": {"kind": "rope"}, "kv_heads": 2, "window": 5, "activation": "swiglu"},
        {**LEARNED, "embedding": {"norm": True}, "norm": {"kind": "rms"}},
    ],
    ids=["pre-norm", "post-norm", "rotary in a window", "learned"],
)
def test_translators(changes: dict[str, Any], tmp_path: Path) -> None:
    same_translations(run_of(tmp_path / "run", "encoder-decoder", **changes), tmp_path / "out")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["masked", "tokens", "pooled", "none"])
def test_encoders(kind: str, tmp_path: Path) -> None:
    head = {"kind": kind, "bias": kind == "masked", "classes": 3 if kind in ("tokens", "pooled") else 0}
    run = run_of(tmp_path / "run", "encoder", head=head, embedding={"segments": 2, "norm": True}, **SMALL)
    export(run, tmp_path / "out", "onnx")
    program, loaded = readme_program(tmp_path / "out"), clearhead.load(run)
    texts = [text for text in TEXTS if text]
    tokens, real = right_pad([loaded.tokens(text) for text in texts], loaded.device)
    assert real is not None
    hidden, output = program["model"].run(None, {"tokens": tokens.numpy(), "real": real.numpy()})
    for row, (states, made) in enumerate(zip(loaded.encode(texts), loaded.predict(texts), strict=True)):
        assert hidden[row, : len(states)] == pytest.approx(states.numpy(), abs=TOLERANCE)
        found = output[row] if kind == "pooled" else output[row, : len(states)]
        assert found == pytest.approx(made.numpy(), abs=TOLERANCE)
