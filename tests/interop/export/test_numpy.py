"""The script that needs nothing but NumPy: the same tokens and log-probabilities as ours, in every shape."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.decoding.answer import prediction
from clearhead.errors import InputError
from clearhead.interop.export import export
from clearhead.interop.export.marks import runs_of
from clearhead.tokenizer import Characters, Integers, Tokenizer
from tests.interop.export.runs import LEARNED, LLAMA, POST_NORM, TEXTS, TOLERANCE, fuzzed, run_of, tokenizer

WRITERS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("encoder-decoder", {**POST_NORM, "head": {"bias": False}}),
    "pre-norm": ("encoder-decoder", {"activation": "gelu"}),
    "split": ("encoder-decoder", {"positions": {"layout": "split"}, "head": {"tied": False, "bias": False}}),
    "learned": ("encoder-decoder", {**LEARNED, "embedding": {"norm": True}}),
    "relative": ("encoder-decoder", {"positions": {"kind": "rope"}, "kv_heads": 2, "window": 5, "bias": False}),
    "alibi": ("encoder-decoder", {"positions": {"kind": "alibi"}, "activation": "gelu_tanh", "heads": 2}),
    "gpt2": ("decoder", {**LEARNED, "activation": "gelu_tanh", "embedding": {"scaled": False}}),
    "no final norm": ("decoder", {"embedding": {"scaled": False}, "norm": {"placement": "pre", "final": False}}),
    "llama": ("decoder", {**LLAMA, "kv_heads": 2}),
    "qwen3": ("decoder", {**LLAMA, "qk_norm": True, "head_dim": 6, "qkv_bias": True}),
    "stretched": (
        "decoder",
        {"positions": {"kind": "rope", "scaling": {"kind": "llama3", "factor": 4.0, "context": 16}}},
    ),
    "later": ("encoder-decoder", {"positions": {"start": 2}, "qk_norm": True, "kv_heads": 2}),
    "stream": ("decoder", {"data": {"text": "x", "documents": "none"}, "positions": {"kind": "rope"}, "window": 4}),
    "alibi alone": ("decoder", {"positions": {"kind": "alibi"}, "activation": "silu", **POST_NORM}),
    "no positions": ("decoder", {"positions": {"kind": "none"}, "norm": {"placement": "post", "final": True}}),
}
READERS: dict[str, dict[str, Any]] = {
    "masked": {"head": {"kind": "masked", "bias": True}},
    "bert": {
        "head": {"kind": "masked", "tied": False, "bias": False},
        "embedding": {"scaled": False, "norm": True, "segments": 2},
        "activation": "gelu",
        **LEARNED,
        **POST_NORM,
    },
    "tokens": {"head": {"kind": "tokens", "classes": 3}, "bias": False, "positions": {"kind": "rope"}},
    "pooled": {"head": {"kind": "pooled", "classes": 3}, "positions": {"kind": "alibi"}, "kv_heads": 1, "window": 3},
    "vector": {"head": {"kind": "pooled"}, "activation": "swiglu", "norm": {"kind": "rms"}},
    "states": {"head": {"kind": "none"}},
}


def script(run: Path, folder: Path) -> Any:
    """The exported script, as a module."""
    export(run, folder, "numpy")
    spec = importlib.util.spec_from_file_location("exported", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", WRITERS)
def test_it_writes_what_the_run_writes(name: str, tmp_path: Path) -> None:
    kind, changes = WRITERS[name]
    run = run_of(tmp_path / "run", kind, **changes)
    model, loaded = script(run, tmp_path / "out"), clearhead.load(run)
    for text in TEXTS:
        wanted: Any
        if kind == "encoder-decoder":
            wanted = loaded.translate([text], beam_size=1)[0]
        else:
            wanted = loaded.generate([text], temperature=0)[0]
        ids, log_probs = zip(*model.write(text), strict=True)
        assert list(ids[: len(wanted.tokens)]) == wanted.tokens
        assert log_probs == pytest.approx(wanted.log_probs, abs=TOLERANCE)
        assert model.answer(text) == wanted.text


@pytest.mark.parametrize("name", READERS)
def test_it_reads_as_the_run_reads(name: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder", **READERS[name])
    model, loaded = script(run, tmp_path / "out"), clearhead.load(run)
    for text in ["the cat", "the <mask> sat on <mask>", "<mask>", "Ünïcödé 日本 🙂"]:
        states, made = loaded.encode([text])[0], loaded.predict([text])[0]
        assert model.encoder(model.read(text)) == pytest.approx(states.numpy(), abs=TOLERANCE)
        assert model.head(model.encoder(model.read(text))) == pytest.approx(made.numpy(), abs=TOLERANCE)
        said, wanted = model.answer(text), prediction(loaded, text, made)
        if name in ("vector", "states"):
            assert json.loads(said) == pytest.approx(wanted, abs=TOLERANCE) if name == "vector" else True
        else:
            assert (said if loaded.model.config.head.kind == "masked" else json.loads(said)) == wanted


@pytest.mark.parametrize(
    "words",
    [tokenizer(), tokenizer(pattern="cl100k"), tokenizer(pattern="o200k"), Characters.train(["the cat日é"])],
    ids=["gpt2", "cl100k", "o200k", "characters"],
)
def test_the_same_ids_of_any_text(words: Tokenizer, tmp_path: Path) -> None:
    model = script(run_of(tmp_path / "run", "decoder", words), tmp_path / "out")
    for text in fuzzed(300):
        ids = words.encode_ordinary(text)
        assert model.encode(text) == ids
        assert model.decode(ids) == words.decode(ids)
    marks = list(words.special.values())
    assert model.decode(marks) == words.decode(marks)


def test_integers(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder-decoder", Integers(12))
    model, loaded = script(run, tmp_path / "out"), clearhead.load(run)
    for text in ["3 1 2", "11 0 007"]:
        assert model.answer(text) == loaded.translate([text], beam_size=1)[0].text


def test_rows_without_a_token_are_never_written(tmp_path: Path) -> None:
    words = tokenizer()
    run = run_of(tmp_path / "run", "encoder-decoder", vocab_size=words.size + 300)
    model = script(run, tmp_path / "out")
    assert [0, 1, *range(words.size, words.size + 300)] == model.NEVER
    assert all(token < words.size for text in TEXTS for token, _ in model.write(text))


def test_it_runs_without_us(tmp_path: Path) -> None:
    """As a program, in an interpreter that finds neither clearhead nor torch."""
    run = run_of(tmp_path / "run", "encoder-decoder")
    export(run, tmp_path / "out", "numpy")
    wanted = [found.text for found in clearhead.load(run).translate(TEXTS[:3], beam_size=1)]
    block = (
        "import sys; sys.modules['torch'] = sys.modules['clearhead'] = None; import runpy; sys.argv = sys.argv[1:]; "
    )
    program = [sys.executable, "-c", block + "runpy.run_path(sys.argv[0], run_name='__main__')"]
    said = subprocess.run([*program, tmp_path / "out" / "model.py", *TEXTS[:3]], capture_output=True, check=True)
    assert said.stdout.decode("utf-8").splitlines() == wanted
    typed = "\n".join(TEXTS[:3]).encode()
    piped = subprocess.run([*program, tmp_path / "out" / "model.py"], input=typed, capture_output=True, check=True)
    assert piped.stdout == said.stdout


def test_the_name_of_a_run_is_not_run(tmp_path: Path) -> None:
    run = run_of(tmp_path / 'x"""; raise SystemExit; """\\', "encoder-decoder")
    assert script(run, tmp_path / "out").__doc__.splitlines()[2].endswith(" layers.")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decoding": {"repetition_penalty": 1.2}}, "decoding.repetition_penalty = 1.2"),
        ({"decoding": {"no_repeat_ngram": 3}}, "decoding.no_repeat_ngram = 3"),
        ({"words": tokenizer(pattern=r"\w+|\W+")}, "pre-split pattern"),
    ],
)
def test_what_it_cannot_follow_is_named(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder-decoder", **changes)
    with pytest.raises(InputError, match=said):
        export(run, tmp_path / "out", "numpy")
    assert not (tmp_path / "out").exists()


def test_numbers_in_a_row_are_written_short() -> None:
    assert runs_of([0, 1, 7, 8, 9, 11]) == "[0, 1, *range(7, 10), 11]"
