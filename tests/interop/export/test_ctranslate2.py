"""CTranslate2 writes what we write, token for token, from the folder that is exported to it."""

import json
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.errors import InputError
from clearhead.interop.export import export
from clearhead.tokenizer import SPECIAL, Characters
from tests.interop.export.runs import LEARNED, LLAMA, POST_NORM, TEXTS, TOLERANCE, run_of, tokenizer

ctranslate2 = pytest.importorskip("ctranslate2")
tokenizers = pytest.importorskip("tokenizers")

TRANSLATORS: dict[str, dict[str, Any]] = {
    "paper": {**POST_NORM, "head": {"bias": False}},
    "pre-norm": {"activation": "gelu", "head": {"tied": False}},
    "split": {"positions": {"layout": "split", "base": 1000.0}, "bias": False, "activation": "swiglu"},
    "learned": {**LEARNED, "embedding": {"norm": True, "scaled": False}, "norm": {"kind": "rms"}},
    "rotary": {"positions": {"kind": "rope"}},
    "grouped": {"kv_heads": 2},
    "later": {"positions": {"start": 2}, "norm": {"kind": "rms"}},
    "no positions": {"positions": {"kind": "none"}, "norm": {"placement": "pre", "epsilon": 1e-3}},
}
GENERATORS: dict[str, dict[str, Any]] = {
    "gpt2": {**LEARNED, "activation": "gelu_tanh", "embedding": {"scaled": False}},
    "llama": {**LLAMA, "kv_heads": 2},
    "qwen3": {**LLAMA, "qk_norm": True, "head_dim": 6, "qkv_bias": True},
    "stretched": {"positions": {"kind": "rope", "scaling": {"kind": "linear", "factor": 4.0}}},
    "interleaved": {"positions": {"kind": "rope"}, "activation": "silu"},
    "one key": {"positions": {"kind": "rope"}, "kv_heads": 1, "embedding": {"scaled": False}},
    "alibi": {"positions": {"kind": "alibi"}},
    "sinusoids": {**POST_NORM, "norm": {"placement": "pre", "final": False}, "embedding": {"scaled": False}},
}


def exported(run: Path, folder: Path, **options: Any) -> Any:
    """The tokenizer of an exported folder."""
    export(run, folder, "ctranslate2", **options)
    words = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    words.encode_special_tokens = True
    return words


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translator(name: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder-decoder", **TRANSLATORS[name])
    words, loaded = exported(run, tmp_path / "out"), clearhead.load(run)
    translator = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    texts = [text for text in TEXTS if text]  # CTranslate2 translates nothing by nothing, without asking the model
    for text, wanted in zip(texts, loaded.translate(texts, beam_size=1), strict=True):
        tokens = words.encode(text).tokens
        assert words.encode(text).ids == loaded.source(text)[0]
        [found] = translator.translate_batch(
            [tokens],
            beam_size=1,
            min_decoding_length=0,
            max_decoding_length=len(tokens) + 6,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        ids = [words.token_to_id(token) for token in found.hypotheses[0]]
        assert ids == wanted.tokens
        assert words.decode(ids) == wanted.text
        [scored] = translator.score_batch([tokens], [found.hypotheses[0]])
        assert sum(scored.log_probs[: len(ids)]) == pytest.approx(sum(wanted.log_probs[: len(ids)]), abs=TOLERANCE)


@pytest.mark.parametrize("name", GENERATORS)
def test_generator(name: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "decoder", **GENERATORS[name])
    words, loaded = exported(run, tmp_path / "out"), clearhead.load(run)
    generator = ctranslate2.Generator(str(tmp_path / "out"), compute_type="float32")
    for text, wanted in zip(TEXTS, loaded.generate(TEXTS, temperature=0), strict=True):
        tokens = words.encode(text).tokens
        assert words.encode(text).ids == loaded.prompt(text)
        [found] = generator.generate_batch(
            [tokens],
            max_length=12,
            sampling_topk=1,
            include_prompt_in_result=False,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        assert found.sequences_ids[0] == wanted.tokens
        [scored] = generator.score_batch([[*tokens, *found.sequences[0]]])
        ours = loaded.score([text])[0].log_probs[:-1]
        assert scored.log_probs[: len(ours)] == pytest.approx(ours, abs=TOLERANCE)


def test_a_vocabulary_for_each_side(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder-decoder", source=Characters.train(TEXTS))
    words, loaded = exported(run, tmp_path / "out"), clearhead.load(run)
    target = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "target_tokenizer.json"))
    translator = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    told = {"beam_size": 1, "min_decoding_length": 0, "suppress_sequences": [["<pad>"], ["<s>"]]}
    texts = [text for text in TEXTS if text]
    for text, wanted in zip(texts, loaded.translate(texts, beam_size=1), strict=True):
        tokens = words.encode(text).tokens
        [found] = translator.translate_batch([tokens], max_decoding_length=len(tokens) + 6, **told)
        assert target.decode([target.token_to_id(token) for token in found.hypotheses[0]]) == wanted.text


def test_rows_without_a_token_are_never_written(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder-decoder", tokenizer(), vocab_size=600)
    words = exported(run, tmp_path / "out")
    translator = ctranslate2.Translator(str(tmp_path / "out"))
    found = translator.translate_batch(
        [words.encode(text).tokens for text in TEXTS], beam_size=3, max_decoding_length=30
    )
    assert not [token for one in found for token in one.hypotheses[0] if token.startswith("<row")]


def test_int8_on_request(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "encoder-decoder", d_model=64, d_ff=128, decoding={"max_source": 16})
    words = exported(run, tmp_path / "small", quantization="int8")
    exported(run, tmp_path / "whole")
    sizes = [(tmp_path / folder / "model.bin").stat().st_size for folder in ("small", "whole")]
    assert 2 * sizes[0] < sizes[1]
    translator = ctranslate2.Translator(str(tmp_path / "small"), compute_type="int8")
    assert translator.translate_batch([words.encode("the cat").tokens])[0].hypotheses


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("encoder", {"head": {"kind": "masked"}}, "model.kind = 'encoder'"),
        ("encoder-decoder", {"positions": {"kind": "alibi"}}, "model.positions.kind = 'alibi'"),
        ("decoder", {"window": 7}, "model.window = 7"),
        ("decoder", {"qk_norm": True}, "model.qk_norm = True with .* model.norm.kind = 'layer'"),
        ("encoder-decoder", {"qk_norm": True, "norm": {"kind": "rms"}}, "model.qk_norm = True"),
        ("decoder", {"norm": {"placement": "post", "final": True}}, "model.norm.final = True"),
    ],
)
def test_what_it_cannot_follow_is_named(kind: str, changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", kind, **changes)
    with pytest.raises(InputError, match=said):
        export(run, tmp_path / "out", "ctranslate2")
    assert not (tmp_path / "out").exists()


def test_the_card_tells_how(tmp_path: Path) -> None:
    run = run_of(tmp_path / "pairs", "encoder-decoder", tokenizer(SPECIAL))
    export(run, tmp_path / "out", "ctranslate2")
    said = (tmp_path / "out" / "README.md").read_text()
    assert said.startswith("# pairs\n")
    code = said.split("```python\n")[1].split("```")[0].replace("DIR", str(tmp_path / "out"))
    exec(compile(code, "README.md", "exec"), {})
    assert json.loads((tmp_path / "out" / "config.json").read_text())["decoder_start_token"] == "<s>"
