"""The tokenizers of other people's folders give the ids and texts that `transformers` gives."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

import clearhead
from clearhead.errors import InputError
from clearhead.interop.tokenizers import around, read_tokenizers
from clearhead.tokenizer import BytePair, Tokenizer, load
from clearhead.tokenizer.delegated import Delegated
from tests.interop import folders
from tests.interop.folders import fuzzed

KINDS: dict[str, tuple[Callable[[Path], Any], type[Tokenizer], str]] = {
    "gpt2": (folders.byte_level, BytePair, "PreTrainedTokenizerFast"),
    "qwen": (lambda folder: folders.byte_level(folder, nfc=True), Delegated, "PreTrainedTokenizerFast"),
    "llama": (folders.llama_like, Delegated, "PreTrainedTokenizerFast"),
    "bert": (folders.word_piece, Delegated, "PreTrainedTokenizerFast"),
    "bert, vocab.txt": (lambda folder: folders.word_piece(folder, whole=False), Delegated, "BertTokenizer"),
}
PLAIN = [text for text in fuzzed() if not any(mark in text for mark in ("<s>", "</s>", "<unk>", "[MASK]"))]


@pytest.mark.parametrize("name", KINDS)
def test_ids_and_texts(name: str, tmp_path: Path) -> None:
    make, kind, theirs_kind = KINDS[name]
    make(tmp_path)
    ours, source = read_tokenizers(tmp_path, {"model_type": "x"})
    assert source is None
    assert type(ours) is kind
    theirs = getattr(transformers, theirs_kind).from_pretrained(tmp_path)
    assert ours.around is not None
    before, after = ours.around
    for text in PLAIN:
        ids = ours.encode_ordinary(text)
        assert [*before, *ids, *after] == theirs(text)["input_ids"], text
        assert ours.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False), text
    # kept in a run and read again, it is the same
    ours.save(tmp_path / "kept.json")
    again = load(tmp_path / "kept.json")
    assert (again.marks, again.around, again.size) == (ours.marks, ours.around, ours.size)
    assert [again.encode_ordinary(text) for text in PLAIN] == [ours.encode_ordinary(text) for text in PLAIN]


@pytest.mark.parametrize("name", ["qwen", "llama", "bert"])
def test_streaming_says_the_same(name: str, tmp_path: Path) -> None:
    KINDS[name][0](tmp_path)
    ours, _ = read_tokenizers(tmp_path, {})
    for text in PLAIN:
        ids = ours.encode_ordinary(text)
        for cut in (0, len(ids) // 2):
            if ours.decode(ids[:cut]).endswith("\ufffd"):  # no prompt ends within a character
                continue
            stream = ours.decoder(ids[:cut])
            said = "".join([stream.push(token) for token in ids[cut:]]) + stream.finish()
            assert said == ours.decode_after(ids[:cut], ids[cut:]), (text, cut)
            assert ours.decode(ids) == (ours.decode(ids[:cut]) + said if cut else said)


@pytest.mark.parametrize("apart", [False, True])
def test_marian(apart: bool, tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    vocabulary = folders.marian_pieces(tmp_path, apart)
    settings = {"is_encoder_decoder": True, "decoder_start_token_id": 5, "eos_token_id": 0}
    target, source = read_tokenizers(tmp_path, settings)
    assert source is not None
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    assert (target.bos_id, target.eos_id, source.pad_id) == (5, 0, vocabulary["<pad>"])
    for text in [*PLAIN, ">>xyz<< the cat", ">>none<< the cat"]:
        if "▁" in text:  # which SentencePiece takes for a space, and tokenizers does too, but not at the same moment
            continue
        assert [*source.encode_ordinary(text), source.eos_id] == theirs(text)["input_ids"], text
        assert [*target.encode_ordinary(text), target.eos_id] == theirs(text_target=text)["input_ids"], text
        ids = target.encode_ordinary(text)
        if (
            not apart and target.unk_id not in ids
        ):  # theirs decodes by the source's numbers, and puts spaces around <unk>
            assert target.decode(ids) == theirs.decode(ids), text


def test_llamas_own_model_file(tmp_path: Path) -> None:
    """`tokenizer.model`, byte-pair encoding with scores, against SentencePiece itself."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(folders.LINES * 3), model_prefix=str(tmp_path / "tokenizer"), vocab_size=420,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    ours, _ = read_tokenizers(tmp_path, {})
    assert ours.around == ((1,), ())
    for text in PLAIN:
        if "▁" not in text:
            assert ours.encode_ordinary(text) == theirs.encode(text), text
            assert ours.decode(ours.encode_ordinary(text)) == theirs.decode(theirs.encode(text)), text


def test_names_of_marks_in_a_text_are_plain_text(tmp_path: Path) -> None:
    folders.word_piece(tmp_path)
    ours, _ = read_tokenizers(tmp_path, {})
    ids = ours.encode_ordinary("the [MASK] [SEP]")
    assert not set(ids) & {ours.special["[MASK]"], ours.special["[SEP]"]}
    assert ours.encode("the [MASK]", {"[MASK]"})[-1] == ours.mask_id


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(clearhead.InputError, match=r"holds no tokenizer: none of tokenizer\.json, vocab\.json"):
        read_tokenizers(tmp_path, {})
    folders.byte_level(tmp_path)
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    for content, message in (
        ("[]", "an object is wanted, not a list"),
        ("{}", "it has no model"),
        ('{"model": {"type": "Rune"}}', "is not a tokenizer that tokenizers can read"),
        (json.dumps({**whole, "post_processor": {"type": "Rune"}}), "post-processor 'Rune' cannot be followed"),
    ):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(clearhead.InputError, match=message):
            read_tokenizers(tmp_path, {})
    (tmp_path / "tokenizer.json").unlink()
    for damaged in (b"", b"\xff" * 40, b"\x0a\x05ab"):
        (tmp_path / "tokenizer.model").write_bytes(damaged)
        with pytest.raises(clearhead.InputError, match=r"tokenizer\.model"):
            read_tokenizers(tmp_path, {})


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
    "special_tokens": {"<s>": {"ids": [1]}},
}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"special_tokens": {}}, "None cannot be followed"),
        ("all of it", "'all of it' cannot be followed"),
        ({**TEMPLATE, "type": ["x"]}, r"\['x'\] cannot be followed"),
        ({**TEMPLATE, "special_tokens": {}}, "'TemplateProcessing' is damaged: KeyError"),
        ({**TEMPLATE, "single": []}, "'TemplateProcessing' is damaged: ValueError"),
        ({**TEMPLATE, "special_tokens": {"<s>": {"ids": ["a"]}}}, "are no ids"),
        ({"type": "BertProcessing", "cls": [], "sep": ["x", 2]}, "'BertProcessing' is damaged: IndexError"),
    ],
)
def test_a_damaged_post_processor_is_refused_by_name(step: Any, said: str) -> None:
    assert around(TEMPLATE, Path("t.json")) == ((1,), ())
    for processor in (step, {"processors": [TEMPLATE, step]}):
        with pytest.raises(InputError, match=rf"^t\.json: .*{said}"):
            around(processor, Path("t.json"))
