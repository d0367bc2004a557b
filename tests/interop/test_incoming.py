"""Folders of other people's models, from `clearhead import` on: the same logits, the same texts, and training on."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save_file

import clearhead
from clearhead.interop.incoming import read, write_run
from clearhead.model import KVCache
from clearhead.run import Run
from clearhead.training.config import load_recipe
from clearhead.training.session import train
from tests.interop import folders
from tests.interop.conftest import Invoke
from tests.interop.test_transformers import positions
from tests.model.helpers import close

LONG = 64


def load_file(path: Path) -> dict[str, torch.Tensor]:
    """In memory and not mapped: these tests write over what they have read."""
    return load(path.read_bytes())


DECODERS: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2", folders.byte_level, {"n_positions": LONG}),
    "llama": ("LlamaForCausalLM", "Llama", folders.llama_like, {"num_key_value_heads": 2, "head_dim": 6}),
    "mistral": ("MistralForCausalLM", "Mistral", folders.llama_like, {"sliding_window": 3}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2", lambda folder: folders.byte_level(folder, nfc=True), {}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3", lambda folder: folders.byte_level(folder, nfc=True), {"head_dim": 6}),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", DECODERS)
def test_a_language_model(name: str, tmp_path: Path) -> None:
    """Logits with padding on both sides and step by step with a cache, and the greedy text of `transformers`."""
    kind, family, tokenizer, settings = DECODERS[name]
    theirs = folders.saved(tmp_path / "theirs", kind, family, max_position_embeddings=LONG, **settings)
    tokenizer(tmp_path / "theirs")
    write_run(read(tmp_path / "theirs"), tmp_path / "run")
    loaded = clearhead.load(tmp_path / "run")
    ours = loaded.model
    ids = torch.randint(0, 300, (3, 12), generator=torch.Generator().manual_seed(1))
    for side in ("left", "right"):
        real = torch.arange(12) >= torch.tensor([[0], [5], [2]])
        real = real if side == "left" else real.flip(1)
        wanted = theirs(ids, attention_mask=real.long(), position_ids=positions(real)).logits
        close(ours(ids, real)[real], wanted[real], 1e-5)
    cache = KVCache(ours.config, 3)
    with torch.no_grad():
        steps = [ours(part, cache=cache) for part in ids.split([4, *[1] * 8], dim=1)]
    close(torch.cat(steps, 1), theirs(ids).logits, 1e-5)
    prompt = loaded.prompt("the cat sat")
    with torch.no_grad():
        never = list(loaded._beam_search(loaded.settings, 1).constraints.forbidden)
        told = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=None, suppress_tokens=never
        )
    found = loaded.generate("the cat sat", temperature=0, max_tokens=20)[0]
    end = loaded.tokenizer.eos_id
    wanted_ids = told[0, len(prompt) :].tolist()
    wanted_ids = wanted_ids[: wanted_ids.index(end)] if end in wanted_ids else wanted_ids
    assert found.tokens == wanted_ids
    assert "".join(loaded.stream("the cat sat", temperature=0, max_tokens=20)) == found.text


def test_rows_without_a_token_are_never_chosen(tmp_path: Path) -> None:
    """An embedding may have more rows than its tokenizer has tokens, and a model may want one of them most of all."""
    theirs = folders.saved(tmp_path / "theirs", "GPT2LMHeadModel", "GPT2", n_positions=LONG, tie_word_embeddings=False)
    folders.byte_level(tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    tensors["lm_head.weight"][folders.SIZE + 3 :] *= 100
    save_file(tensors, tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
    assert theirs.config.vocab_size > folders.SIZE
    loaded = clearhead.from_pretrained(tmp_path / "theirs")
    for seed in range(3):
        found = loaded.generate("the cat", max_tokens=40, temperature=1.5, seed=seed)[0]
        assert max(found.tokens) < loaded.tokenizer.size


@pytest.mark.parametrize("old", [False, True])
def test_sentence_vectors_by_command(old: bool, tmp_path: Path, invoke: Invoke) -> None:
    """`import` and `encode --mean --normalise` from raw text; also with the names of the first published files."""
    theirs = folders.saved(tmp_path / "theirs", "BertModel", "Bert", max_position_embeddings=LONG)
    folders.word_piece(tmp_path / "theirs", whole=not old)
    if old:
        path = tmp_path / "theirs" / "model.safetensors"
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in load_file(path).items()
        }
        save_file(renamed, path)
    assert invoke("import", tmp_path / "theirs", tmp_path / "run").exit_code == 0
    (tmp_path / "lines").write_text("the cat sat\nÜber naïve CAFÉ!\n")
    done = invoke("encode", tmp_path / "run", tmp_path / "lines", "--mean", "--normalise", "-o", tmp_path / "v.npy")
    assert done.exit_code == 0, done.stderr
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for line, vector in zip(("the cat sat", "Über naïve CAFÉ!"), np.load(tmp_path / "v.npy"), strict=True):
        states = theirs(**tokenizer(line, return_tensors="pt")).last_hidden_state[0].mean(0)
        close(torch.from_numpy(vector), (states / states.norm()).detach(), 1e-5)


def test_the_form_that_bert_was_trained_in(tmp_path: Path, invoke: Invoke) -> None:
    theirs = folders.saved(tmp_path / "theirs", "BertForPreTraining", "Bert")
    folders.word_piece(tmp_path / "theirs")
    done = invoke("import", tmp_path / "theirs", tmp_path / "run")
    assert done.exit_code == 0
    assert "left out: cls.seq_relationship.weight" in done.stderr
    ids = torch.randint(0, 300, (2, 9), generator=torch.Generator().manual_seed(1))
    close(clearhead.load(tmp_path / "run").model(ids), theirs(ids).prediction_logits, 1e-5)
    (tmp_path / "lines").write_text("the [MASK] sat\n")
    said = invoke("encode", tmp_path / "run", tmp_path / "lines", "--predict")
    assert said.exit_code == 0, said.stderr


@pytest.mark.parametrize("apart", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_translator(apart: bool, tmp_path: Path, invoke: Invoke) -> None:
    """Marian with one vocabulary and with two: greedy translations and scores of `transformers`, by command too."""
    pytest.importorskip("sentencepiece")
    import transformers

    (tmp_path / "theirs").mkdir()
    vocabulary = folders.marian_pieces(tmp_path / "theirs", apart)
    own = json.loads((tmp_path / "theirs" / "target_vocab.json").read_text()) if apart else vocabulary
    pad = vocabulary["<pad>"]
    theirs = folders.saved(
        tmp_path / "theirs", "MarianMTModel", "Marian", vocab_size=len(vocabulary), decoder_vocab_size=len(own),
        pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, max_position_embeddings=LONG,
        share_encoder_decoder_embeddings=not apart,
    )  # fmt: skip
    assert invoke("import", tmp_path / "theirs", tmp_path / "run").exit_code == 0
    loaded = clearhead.load(tmp_path / "run")
    assert (loaded.source_tokenizer is loaded.tokenizer) is False
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "theirs")
    lines = ["the cat sat on the mat", "Über allen", "a dog"]
    forbidden = loaded._beam_search(loaded.settings, 1).constraints.forbidden
    for line in lines:
        ids = tokenizer(line, return_tensors="pt").input_ids
        with torch.no_grad():
            told = theirs.generate(
                ids, num_beams=1, do_sample=False, max_new_tokens=ids.size(1) + 2, suppress_tokens=list(forbidden),
                forced_eos_token_id=None, bad_words_ids=None,
            )[0, 1:].tolist()  # fmt: skip
        found = loaded.translate([line], beam_size=1, max_extra=2)[0]
        assert found.tokens == (told[: told.index(0)] if 0 in told else told)
        wanted = theirs(ids, decoder_input_ids=torch.tensor([[pad, *found.tokens]])).logits.log_softmax(-1)[0]
        written = [*found.tokens, 0][: len(found.log_probs)]
        close(torch.tensor(found.log_probs), wanted[torch.arange(len(written)), written].detach(), 1e-4)
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    said = invoke("translate", tmp_path / "run", tmp_path / "lines", "--beam-size", "1")
    assert said.exit_code == 0, said.stderr
    assert len(said.stdout.splitlines()) == 3
    (tmp_path / "s").write_text("the cat\n")
    (tmp_path / "t").write_text("a dog\n")
    for command in (
        ["score", tmp_path / "run", "--source", tmp_path / "s", "--target", tmp_path / "t"],
        ["attention", tmp_path / "run", "the cat", "-o", tmp_path / "a.png"],
        ["shapes", tmp_path / "run"],
        ["evaluate", tmp_path / "run", "--source", tmp_path / "s", "--reference", tmp_path / "t"],
        ["tokenizer", "info", tmp_path / "run"],
    ):
        done = invoke(*command)
        assert done.exit_code == 0, (command, done.stderr)


def test_it_trains_on_and_resumes(tmp_path: Path) -> None:
    """An imported run is resumed as any other, bit for bit, and learns."""
    folders.saved(tmp_path / "theirs", "GPT2LMHeadModel", "GPT2", n_positions=LONG)
    folders.byte_level(tmp_path / "theirs")
    (tmp_path / "text").write_text("\n".join(folders.LINES * 20))
    settings = [
        f"data.text={tmp_path / 'text'}", "data.context=16", "training.max_tokens=64", "training.warmup=2",
        "training.validate_every=4", "training.samples=0", "training.threads=1",
    ]  # fmt: skip
    ends = []
    for name, stops in (("once", [8]), ("twice", [4, 8])):
        run = write_run(read(tmp_path / "theirs"), tmp_path / name)
        before = Run(run).weights("latest")
        for stop in stops:
            train(load_recipe(str(run), [*settings, f"training.steps={stop}"]), run, quiet=True)
        after = Run(run).weights("step_8")
        assert not torch.equal(before["decoder.norm.weight"], after["decoder.norm.weight"])
        ends.append(after)
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    with pytest.raises(clearhead.InputError, match=r"was begun with model\.heads = 5, now it is 4"):
        train(load_recipe(str(tmp_path / "once"), [*settings, "model.heads=4"]), tmp_path / "once", quiet=True)
    metrics = [json.loads(line) for line in (tmp_path / "once" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["step"] == 8


# ---- what is refused, before anything is written -------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folders.saved(tmp_path / "theirs", "GPT2LMHeadModel", "GPT2")
    folders.byte_level(tmp_path / "theirs")
    return tmp_path / "theirs"


def refused(invoke: Invoke, folder: Path, message: str) -> None:
    run = folder.parent / "run"
    done = invoke("import", folder, run)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr, done.stderr
    assert not list(folder.parent.glob("*run*"))
    assert not list(folder.parent.glob(".*run*"))


def test_damaged_weights(folder: Path, invoke: Invoke) -> None:
    path = folder / "model.safetensors"
    whole, tensors = path.read_bytes(), load_file(path)
    name = "transformer.h.1.mlp.c_fc.weight"
    for written, message in (
        (whole[: len(whole) // 2], "not a safetensors file"),
        (whole[:5], "not a safetensors file, or cut short"),
        (struct.pack("<Q", 1 << 40) + whole[8:], "length of its header, 1,099,511,627,776"),
        (b"\x80\x02}q\x00." * 9, "not a safetensors file"),
        (
            {**tensors, name: tensors[name][:, :7].contiguous()},
            f"tensor '{name}': found shape (20, 7), wanted (20, 80)",
        ),
        ({k: v for k, v in tensors.items() if k != name}, f"missing tensor '{name}' of shape (20, 80)"),
        ({**tensors, "transformer.extra": torch.ones(2)}, "unexpected tensor 'transformer.extra' of shape (2,)"),
        ({**tensors, "transformer.h.2.ln_1.bias": torch.ones(20)}, "unexpected tensor 'transformer.h.2.ln_1.bias'"),
        ({**tensors, name: torch.full((20, 80), torch.nan)}, f"tensor '{name}' has values that are not finite"),
    ):
        if isinstance(written, bytes):
            path.write_bytes(written)
        else:
            save_file(written, path)
        refused(invoke, folder, message)


def test_shards(folder: Path, invoke: Invoke) -> None:
    """In several files it is the same model; an index that does not fit its files, or leads elsewhere, is refused."""
    whole = clearhead.from_pretrained(folder).model.state_dict()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    places = {name: file for file, part in files.items() for name in part}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    again = clearhead.from_pretrained(folder).model.state_dict()
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    outside = folder.parent / "outside.safetensors"
    os.link(folder / "a.safetensors", outside)
    for changed, message in (
        ({**places, names[0]: "../outside.safetensors"}, "a .safetensors beside the index is wanted"),
        ({**places, names[0]: str(outside)}, "a .safetensors beside the index is wanted"),
        ({**places, names[0]: "c.safetensors"}, "c.safetensors is missing"),
        ({**places, "more": "a.safetensors"}, "lacks the tensor 'more'"),
        ({name: file for name, file in places.items() if name != names[0]}, f"has the tensor '{names[0]}'"),
        ({}, "weight_map is {}"),
    ):
        index.write_text(json.dumps({"weight_map": changed}))
        refused(invoke, folder, message)


def test_other_files(folder: Path, invoke: Invoke) -> None:
    config = json.loads((folder / "config.json").read_text())
    for changed, message in (
        ({**config, "model_type": "mamba"}, "config.json: model type 'mamba' is not one of gpt2"),
        ({**config, "mystery": 3}, "mystery = 3 is a key that is not known here"),
        ({key: value for key, value in config.items() if key != "n_head"}, "the key 'n_head' is missing"),
        ({**config, "vocab_size": 5}, "tensor 'transformer.wte.weight': found shape (407, 20), wanted (5, 20)"),
    ):
        (folder / "config.json").write_text(json.dumps(changed))
        refused(invoke, folder, message)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(invoke, folder, "pytorch_model.bin is a pickle, a program that runs when it is read")
    refused(invoke, folder / "nowhere", "no such file or folder")
    (folder / "config.json").unlink()
    refused(invoke, folder, "has no config.json")


def test_a_run_is_not_overwritten(folder: Path, invoke: Invoke) -> None:
    run = write_run(read(folder), folder.parent / "run")
    before = (run / "config.toml").read_bytes()
    done = invoke("import", folder, run)
    assert done.exit_code == 2
    assert "is there already" in done.stderr
    assert (run / "config.toml").read_bytes() == before


def test_the_story_and_the_sort_by_command(data: Path, tmp_path: Path, invoke: Invoke) -> None:
    from tests.interop.test_llama2c import STORY

    stories = data / "stories260K"
    run = tmp_path / "stories"
    assert "comes without its tokenizer" in invoke("import", stories / "stories260K.bin", run).stderr
    done = invoke("import", stories / "stories260K.bin", run, "--tokenizer", stories / "tok512.bin")
    assert done.exit_code == 0, done.stderr
    said = invoke("generate", run, "Once upon a time", "--temperature", "0", "--max-tokens", "195")
    assert said.stdout.strip() == STORY.strip()
    sorter = tmp_path / "sort"
    assert invoke("import", data / "nano-gpt-sort" / "gpt-nano-sort-model.json", sorter).exit_code == 0
    for numbers in ("2 0 1 0 2 1", "1 1 0 2 0 0", "0 0 0 2 2 1"):
        said = invoke("generate", sorter, numbers, "--temperature", "0", "--max-tokens", "6")
        assert said.stdout.split() == [*numbers.split(), *sorted(numbers.split())]
