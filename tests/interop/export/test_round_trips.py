"""Other people's models in and out again: the same in `transformers` as before, tokenizer included."""

from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.interop import incoming
from clearhead.interop.export import export
from clearhead.interop.families import read
from clearhead.tokenizer.pieces import Pieces
from tests.interop.export.runs import LLAMA, fuzzed, run_of

transformers = pytest.importorskip("transformers")


def read_again(run: Path, folder: Path, kind: str) -> tuple[Any, Any]:
    export(run, folder, "transformers")
    model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager").eval()
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder), model


def test_bert_with_word_pieces(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "s", "a", "##t", "on", "mat"]
    there = tmp_path / "there"
    there.mkdir()
    (there / "vocab.txt").write_text("\n".join(words) + "\n")
    (there / "tokenizer_config.json").write_text('{"mask_token": "[MASK]"}')
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 20, "num_hidden_layers": 2}
    torch.manual_seed(0)
    before = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(words), **sizes)).eval()
    before.save_pretrained(there)
    run = incoming.write_run(incoming.read(there), tmp_path / "run")
    tokenizer, after = read_again(run, tmp_path / "back", "BertForMaskedLM")
    inputs = tokenizer(["The cats sat on the [MASK]"], return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == clearhead.load(run).tokens("The cats sat on the [MASK]")
    state = after.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in before.state_dict().items())


def test_pegasus(tmp_path: Path) -> None:
    """A family that is only met on the way out is read as well."""
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "vocab_size": 30}
    torch.manual_seed(0)
    config = transformers.PegasusConfig(**sizes, scale_embedding=True, decoder_start_token_id=0)
    before = transformers.PegasusForConditionalGeneration(config).eval()
    ours = read("pegasus", before.config.to_dict(), before.state_dict()).eval()
    source, target = torch.randint(3, 30, (2, 7)), torch.randint(3, 30, (2, 5))
    with torch.no_grad():
        assert torch.allclose(ours(source, target), before(source, decoder_input_ids=target).logits, atol=1e-5)


def test_pieces_with_scores(tmp_path: Path) -> None:
    letters = [" ", *"theca son."]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *dict.fromkeys(letters)]
    pieces += ["th", "he", "the", " the", " c", "at", "cat", " cat", "on", " t", "  "]
    words = Pieces([piece.encode() for piece in pieces], [-float(n) for n in range(len(pieces))], pieces[:3])
    run = run_of(tmp_path / "run", "decoder", words, **LLAMA)
    export(run, tmp_path / "out", "transformers")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "out")
    for text in ["the cat sat on the other", "", " the", "日本 then\n", *fuzzed(200)]:
        ids = words.encode_ordinary(text)
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
        assert tokenizer.decode(ids) == words.decode(ids)


def test_a_model_that_tells_stories(data: Path, tmp_path: Path) -> None:
    """llama2.c's stories260K in `transformers`: the same story."""
    folder = data / "stories260K"
    run = incoming.write_run(incoming.read(folder / "stories260K.bin", folder / "tok512.bin"), tmp_path / "run")
    tokenizer, model = read_again(run, tmp_path / "out", "LlamaForCausalLM")
    inputs = tokenizer(["Once upon a time"], return_tensors="pt")
    story = model.generate(**inputs, do_sample=False, max_new_tokens=60)[0]
    ours = clearhead.load(run).generate("Once upon a time", temperature=0, max_tokens=60)[0]
    assert story[inputs["input_ids"].size(1) :].tolist() == ours.tokens
