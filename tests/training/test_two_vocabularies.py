"""An encoder-decoder with a vocabulary for each side: from a recipe to translations, and on after an interruption."""

from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.data.settings import TokenizerSettings
from clearhead.run import Run
from clearhead.training.config import load_recipe
from clearhead.training.session import train

LINES = [(f"{a} {b}", f"{b * 2}-{a * 2}") for a in "abcdef" for b in "uvwxyz"]


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    for side, texts in zip(("source", "target"), zip(*LINES, strict=True), strict=True):
        (tmp_path / side).write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "two.toml").write_text(
        f"""
        [model]
        preset = "tiny"
        d_model = 32
        heads = 2
        d_ff = 32
        encoder_layers = 1
        decoder_layers = 1
        [tokenizer]
        kind = "characters"
        apart = true
        [data]
        source = "{tmp_path / "source"}"
        target = "{tmp_path / "target"}"
        [training]
        steps = 6
        warmup = 2
        max_tokens = 64
        validate_every = 3
        threads = 1
        """
    )
    return [str(tmp_path / "two.toml")]


def test_learned_apart(settings: list[str], tmp_path: Path) -> None:
    run = train(load_recipe(settings[0]), tmp_path / "run", quiet=True).run
    target, source = run.tokenizer(), run.source_tokenizer()
    assert source is not None
    assert (source.size, target.size) == (4 + 13, 4 + 13)
    assert "-" in target.decode(range(4, 17))
    assert "-" not in source.decode(range(4, 17))
    config = run.model_config
    assert (config.source_vocab_size, config.vocab_size) == (source.size, target.size)
    loaded = clearhead.load(run.path)
    assert set(loaded.translate(["a u"])[0].text) <= set("abcdefuvwxyz-<unk>")
    assert clearhead.load(run.path).score(["a u"], ["uu-aa"])[0].log_probs
    # an interruption changes nothing
    train(load_recipe(settings[0], ["training.steps=3"]), tmp_path / "again", quiet=True)
    train(load_recipe(settings[0]), tmp_path / "again", quiet=True)
    first, second = (Run(tmp_path / name).weights("latest") for name in ("run", "again"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert "source_embedding.weight" in first
    (run.path / "source_tokenizer.json").unlink()
    with pytest.raises(clearhead.InputError, match=r"source_vocab_size = 17, but there is no source_tokenizer\.json"):
        clearhead.load(run.path)


def test_given(settings: list[str], tmp_path: Path) -> None:
    clearhead_tokenizers = train(load_recipe(settings[0]), tmp_path / "run", quiet=True).run
    given = [
        "tokenizer.kind=bpe", f"tokenizer.path={clearhead_tokenizers.path / 'tokenizer.json'}",
        f"tokenizer.source_path={clearhead_tokenizers.path / 'source_tokenizer.json'}",
    ]  # fmt: skip
    with pytest.raises(clearhead.InputError, match="names a tokenizer that exists"):
        train(load_recipe(settings[0], given), tmp_path / "other", quiet=True)
    text = (tmp_path / "two.toml").read_text().replace('kind = "characters"', "")
    (tmp_path / "two.toml").write_text(text)
    other = train(load_recipe(settings[0], given[1:]), tmp_path / "other", quiet=True).run
    for name in ("tokenizer.json", "source_tokenizer.json"):
        assert (other.path / name).read_bytes() == (clearhead_tokenizers.path / name).read_bytes()


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(clearhead.InputError, match=r"give tokenizer\.apart = true, too"):
        TokenizerSettings(source_path="x")
    with pytest.raises(clearhead.InputError, match=r"tokenizer\.apart is for parallel text"):
        train(load_recipe("dates", ["tokenizer.apart=true"]), tmp_path / "dates", quiet=True)
    with pytest.raises(clearhead.InputError, match="source_vocab_size is for kind = 'encoder-decoder', not 'decoder'"):
        clearhead.configure("gpt2", source_vocab_size=9)
