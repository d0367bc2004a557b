"""`transformers` loads what is exported to it by the class that is named, and gives what we give."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.scoring import right_pad
from clearhead.errors import InputError
from clearhead.interop.export import export
from clearhead.tokenizer import Characters, Integers, Tokenizer
from tests.interop.export.runs import LEARNED, LLAMA, POST_NORM, TEXTS, TOLERANCE, fuzzed, run_of, some, tokenizer

transformers = pytest.importorskip("transformers")

BARE: dict[str, Any] = {"head": {"bias": False}, "embedding": {"scaled": False}}
BERT: dict[str, Any] = {
    **POST_NORM,
    **LEARNED,
    "activation": "gelu",
    "embedding": {"scaled": False, "norm": True, "segments": 2},
}
TRANSLATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "pre-norm": ("PegasusForConditionalGeneration", {}),
    "pre-norm, split": ("PegasusForConditionalGeneration", {"positions": {"layout": "split"}, "head": {"bias": False}}),
    "post-norm": ("MarianMTModel", {**POST_NORM, "activation": "gelu"}),
    "post-norm, no biases": ("MarianMTModel", {**POST_NORM, "bias": False, "head": {"tied": False, "bias": False}}),
}
GENERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {**LEARNED, **BARE, "activation": "gelu_tanh"}),
    "llama": ("LlamaForCausalLM", {**LLAMA, "kv_heads": 2}),
    "interleaved": ("LlamaForCausalLM", {**LLAMA, "positions": {"kind": "rope", "base": 500.0}}),
    "mistral": ("MistralForCausalLM", {**LLAMA, "window": 5}),
    "qwen2": ("Qwen2ForCausalLM", {**LLAMA, "qkv_bias": True, "head": {"bias": False, "tied": False}}),
    "qwen3": ("Qwen3ForCausalLM", {**LLAMA, "qk_norm": True, "head_dim": 6}),
}
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "masked": ("BertForMaskedLM", {**BERT, "head": {"kind": "masked", "bias": True}}),
    "tokens": ("BertForTokenClassification", {**BERT, "head": {"kind": "tokens", "classes": 3, "bias": False}}),
    "pooled": ("BertForSequenceClassification", {**BERT, "head": {"kind": "pooled", "classes": 3, "bias": False}}),
    "bare": ("BertModel", {**BERT, "head": {"kind": "none", "bias": False}}),
}


def theirs(run: Path, folder: Path, wanted: str) -> tuple[Any, Any]:
    """Tokenizer and model as `transformers` loads them; nothing in the folder is missing or left over."""
    made = export(run, folder, "transformers")
    assert made.usage == f"transformers.{wanted}.from_pretrained('{folder}')"
    kind = getattr(transformers, wanted)
    model, info = kind.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    left = {name for name in info["missing_keys"] if "pooler" not in name}  # of BertModel, which has one and we do not
    assert not left
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    # AutoTokenizer gives every "qwen2" the tokenizer of Qwen2, whatever its files say
    loader = "PreTrainedTokenizerFast" if wanted == "Qwen2ForCausalLM" else "AutoTokenizer"
    return getattr(transformers, loader).from_pretrained(folder), model.eval()


def picked(logits: Any, tokens: list[int]) -> list[float]:
    """Log-probabilities of the tokens, from the logits before each."""
    return logits.log_softmax(-1)[range(len(tokens)), tokens].tolist()


@pytest.mark.parametrize("name", some(TRANSLATORS, "pre-norm", "post-norm"))
def test_translators(name: str, tmp_path: Path) -> None:
    kind, changes = TRANSLATORS[name]
    run = run_of(tmp_path / "run", "encoder-decoder", **changes)
    (words, model), loaded = theirs(run, tmp_path / "out", kind), clearhead.load(run)
    for text, ours in zip(TEXTS, loaded.translate(TEXTS, beam_size=1), strict=True):
        inputs = words([text], return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == loaded.source(text)[0]
        written = model.generate(**inputs, max_new_tokens=len(loaded.source(text)[0]) + 6)[0, 1:].tolist()
        assert written == [*ours.tokens, *([2] if ours.finished else [])]
        assert words.decode(written, skip_special_tokens=True) == ours.text
        with torch.no_grad():
            logits = model(**inputs, decoder_input_ids=torch.tensor([[1, *written[:-1]]])).logits[0]
        assert picked(logits, written) == pytest.approx(ours.log_probs, abs=TOLERANCE)
    batch = words(TEXTS, return_tensors="pt", padding=True)  # padding changes nothing
    ids, real = right_pad([loaded.source(text)[0] for text in TEXTS], loaded.device)
    assert real is not None
    assert torch.equal(batch["attention_mask"].bool(), real)
    assert torch.equal(batch["input_ids"][real], ids[real])


@pytest.mark.parametrize("name", some(GENERATORS, "gpt2", "interleaved"))
def test_generators(name: str, tmp_path: Path) -> None:
    kind, changes = GENERATORS[name]
    run = run_of(tmp_path / "run", "decoder", **changes)
    (words, model), loaded = theirs(run, tmp_path / "out", kind), clearhead.load(run)
    for text, ours in zip(TEXTS, loaded.generate(TEXTS, temperature=0), strict=True):
        inputs = words([text], return_tensors="pt")
        prompt = inputs["input_ids"][0].tolist()
        assert prompt == loaded.prompt(text)
        written = model.generate(**inputs, do_sample=False, max_new_tokens=12)[0, len(prompt) :].tolist()
        assert written == [*ours.tokens, *([2] if ours.finished else [])]
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *written]])).logits[0, len(prompt) - 1 : -1]
        assert picked(logits, written) == pytest.approx(ours.log_probs, abs=TOLERANCE)
    how = model.generation_config
    assert (how.do_sample, how.temperature, how.top_k, how.suppress_tokens) == (True, 0.8, 0, [0, 1])


@pytest.mark.parametrize("name", some(READERS, "masked"))
def test_readers(name: str, tmp_path: Path) -> None:
    kind, changes = READERS[name]
    run = run_of(tmp_path / "run", "encoder", **changes)
    (words, model), loaded = theirs(run, tmp_path / "out", kind), clearhead.load(run)
    for text in ("the cat", "the <mask> sat 日本"):
        inputs = words([text], return_tensors="pt")
        assert inputs["input_ids"][0].tolist() == loaded.tokens(text)
        with torch.no_grad():
            found = model(**inputs)[0][0]
        assert found.numpy() == pytest.approx(loaded.predict([text])[0].numpy(), abs=TOLERANCE)


TOKENIZERS: dict[str, Tokenizer] = {
    **{pattern: tokenizer(pattern=pattern) for pattern in ("gpt2", "cl100k", "o200k")},
    "characters": Characters.train(["the cat日é"]),
}


@pytest.mark.parametrize("name", some(TOKENIZERS, "gpt2", "characters"))
def test_the_same_ids_of_any_text(name: str, tmp_path: Path) -> None:
    words = TOKENIZERS[name]
    run = run_of(tmp_path / "run", "encoder-decoder", words)
    export(run, tmp_path / "out", "transformers")
    found = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    loaded: LoadedModel = clearhead.load(run)
    for text in fuzzed(300):
        ids = found(text)["input_ids"]
        assert ids == loaded.source(text)[0]
        assert found.decode(ids[:-1]) == words.decode(ids[:-1])


def test_integers(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder-decoder", Integers(12))
    export(run, tmp_path / "out", "transformers")
    found = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in ("3 1 2", "11  0 007 00", ""):
        ids = clearhead.load(run).source(text)[0]
        assert found(text)["input_ids"] == ids
        assert found.decode(ids, skip_special_tokens=True) == Integers(12).decode(ids[:-1])


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("encoder-decoder", {"positions": {"kind": "rope"}}, "positions.kind = 'rope', where it has 'sinusoidal'"),
        ("encoder-decoder", {"norm": {"placement": "pre", "epsilon": 1e-3}}, "norm.epsilon = 0.001"),
        ("decoder", {**LLAMA, "positions": {"kind": "alibi"}}, "LlamaForCausalLM, cannot follow .*'alibi'"),
        (
            "decoder",
            {**LEARNED, "head": {"bias": False}},
            "GPT2LMHeadModel, cannot follow model.embedding.scaled = True",
        ),
        ("encoder", {"head": {"kind": "masked", "bias": True}}, "BertForMaskedLM, cannot follow"),
    ],
)
def test_when_no_class_fits_it_is_said_why(kind: str, changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", kind, **changes)
    with pytest.raises(InputError, match=said):
        export(run, tmp_path / "out", "transformers")
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_for_each_side(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder-decoder", source=Characters.train(TEXTS), **POST_NORM)
    (words, model), loaded = theirs(run, tmp_path / "out", "MarianMTModel"), clearhead.load(run)
    target = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "out" / "target")
    for text, ours in zip(TEXTS, loaded.translate(TEXTS, beam_size=1), strict=True):
        inputs = words([text], return_tensors="pt")
        written = model.generate(**inputs, max_new_tokens=len(loaded.source(text)[0]) + 6)[0]
        assert target.decode(written, skip_special_tokens=True) == ours.text


def test_the_card_is_made_from_the_run(tmp_path: Path) -> None:
    path = tmp_path / "somewhere" / "train.en"
    run = run_of(tmp_path / "pairs", "encoder-decoder", data={"source": str(path), "target": str(path)})
    export(run, tmp_path / "out", "transformers")
    said = (tmp_path / "out" / "README.md").read_text()
    assert said.startswith("---\nlibrary_name: transformers\npipeline_tag: text2text-generation\n")
    assert "# pairs\n" in said
    assert "Data: train.en, train.en." in said
    assert "after 1 steps" in said
    assert "somewhere" not in said
    code = said.split("```python\n")[1].split("```")[0].replace("DIR", str(tmp_path / "out"))
    exec(compile(code, "README.md", "exec"), {})


def test_rows_without_a_token_are_never_written(tmp_path: Path) -> None:
    words = tokenizer()
    run = run_of(tmp_path / "run", "encoder-decoder", words, vocab_size=words.size + 3)
    export(run, tmp_path / "out", "transformers")
    how = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert how["suppress_tokens"] == [0, 1, words.size, words.size + 1, words.size + 2]
