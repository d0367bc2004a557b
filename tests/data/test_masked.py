"""Masked tokens: as BERT has them, and a function of seed, epoch and window."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.data import IGNORE, DataSettings, build
from clearhead.data.masked import MASK, MaskedTokens, chances
from clearhead.errors import InputError
from clearhead.tokenizer import Characters
from tests.data.test_text import ALPHABET, CHARACTERS, LETTERS, documents, stream


def test_masks_are_as_in_bert() -> None:
    text = "".join(np.random.default_rng(0).choice(list(ALPHABET[:26]), 60_000))
    dataset = stream(text, 100, kind=MaskedTokens)
    batch = dataset.collate(range(len(dataset)), seed=1, epoch=0)
    tokens, labels = batch.inputs["tokens"], batch.labels
    original = torch.tensor(LETTERS.encode(text)).view(-1, 100)
    guessed = labels != IGNORE
    assert (guessed.sum(1) == 15).all(), "15% of each window"
    assert batch.count == guessed.sum()
    assert torch.equal(labels[guessed], original[guessed])
    assert torch.equal(tokens[~guessed], original[~guessed])
    masked = tokens[guessed] == LETTERS.special[MASK]
    kept = tokens[guessed] == original[guessed]
    share = masked.double().mean(), (kept & ~masked).double().mean(), (~kept & ~masked).double().mean()
    assert share[0] == pytest.approx(0.8, abs=0.015)
    assert share[1] == pytest.approx(0.1 + 0.1 / 28, abs=0.012), "a random token may be the right one"
    assert share[2] == pytest.approx(0.1 * 27 / 28, abs=0.012)
    swapped = tokens[guessed][~kept & ~masked]
    assert swapped.unique().numel() == 28, "any ordinary token"
    assert swapped.min() >= len(LETTERS.special)
    columns = guessed.sum(0).double()
    assert columns.std() < 1.4 * np.sqrt(600 * 0.15 * 0.85), "every place of a window alike"


def test_masks_depend_on_seed_epoch_and_window_only() -> None:
    dataset = stream("abcdefgh" * 100, 20, kind=MaskedTokens)
    whole = dataset.collate(range(len(dataset)), seed=5, epoch=2)
    part = dataset.collate([31, 4], seed=5, epoch=2)
    assert torch.equal(part.labels, whole.labels[[31, 4]])
    assert torch.equal(part.inputs["tokens"], whole.inputs["tokens"][[31, 4]])
    for seed, epoch in ((6, 2), (5, 3)):
        assert not torch.equal(dataset.collate([31, 4], seed, epoch).labels, part.labels)
    assert not torch.equal(whole.labels[0] == IGNORE, whole.labels[2] == IGNORE)


def test_chances_are_those_of_splitmix64() -> None:
    """Written out once more, in numbers of any length that are cut to 64 bits."""

    def mixed(x: int) -> float:
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = ((x ^ (x >> shift)) * factor) % 2**64
        return ((x ^ (x >> 31)) >> 11) / 2**53

    found = chances(2, np.array([3, 0]), 5, np.random.default_rng(7))
    keys = np.random.default_rng(7).integers(0, 1 << 64, size=2, dtype=np.uint64)
    for number, key in enumerate(keys.tolist()):
        for row, window in enumerate((3, 0)):
            wanted = [mixed((key + (5 * window + place) * 0x9E3779B97F4A7C15) % 2**64) for place in range(5)]
            assert found[number, row].tolist() == wanted


def test_masks_leave_marks_and_padding_alone() -> None:
    dataset = documents(["ab", "c"] * 5, 16, kind=MaskedTokens)
    for epoch in range(20):
        batch = dataset.collate(range(len(dataset)), 0, epoch)
        guessed = batch.labels != IGNORE
        assert batch.inputs["real"].sum() == 35
        assert not (guessed & ~batch.inputs["real"]).any()
        assert (batch.labels[guessed] >= len(LETTERS.special)).all()
        assert guessed.any(1).all(), "something to guess in every window"
        short = stream("abcdefghij", 16, kind=MaskedTokens).collate([0], 0, epoch)
        assert (short.labels[0, 10:] == IGNORE).all()


def test_masked_examples_show_both_texts(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("abcde " * 100)
    splits = build(DataSettings(task="masked", text=str(path), context=30), asked=CHARACTERS)
    assert splits.train.kind == "encoder"
    assert splits.train.head == {"kind": "masked"}
    assert [len(splits.train.examples(limit)) for limit in (1, 3)] == [1, 3]
    source, target = splits.validation.examples(1)[0]
    assert MASK in source
    assert target == ("abcde " * 100)[540:570]
    path.write_text("abc" * 99)
    with pytest.raises(InputError, match="needs a tokenizer with the special token '<mask>'"):
        build(DataSettings(task="masked", text=str(path)), Characters(ALPHABET))


def test_chances_are_uniform_and_independent() -> None:
    drawn = chances(2, np.arange(1000), 50, np.random.default_rng(0))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts, _ = np.histogram(drawn, 20)
    assert abs(counts / 5000 - 1).max() < 0.06
    assert abs(np.corrcoef(drawn[0].ravel(), drawn[1].ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(drawn[0, :, :-1].ravel(), drawn[0, :, 1:].ravel())[0, 1]) < 0.01
