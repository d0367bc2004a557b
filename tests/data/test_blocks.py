"""Epochs in blocks: what a training holds of a large corpus is a block, and where it stands in it is remembered."""

from pathlib import Path

import pytest

from clearhead.data import DataSettings, TokenizerSettings, build
from clearhead.data.plan import count_blocks
from clearhead.training.config import Recipe, TrainingSettings
from clearhead.training.loop import Loop
from clearhead.training.session import train
from tests.data.test_store import KINDS, SMALL, settings_of, write_text


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_in_blocks_has_every_example_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.data.plan.BLOCK", 64)
    data = build(settings_of(kind, tmp_path), asked=SMALL).train
    assert data.blocks == -(-len(data) // 64) > 1
    orders = []
    for epoch in (0, 1):
        plans = [data.plan(5, epoch, 100, block) for block in range(data.blocks)]
        found = [index for plan in plans for batch in plan for index in batch]
        assert sorted(found) == list(range(len(data)))
        first = [index for batch in plans[0] for index in batch]
        assert max(first) > len(data) - 40, "a block is of the whole corpus, not of its beginning"
        assert plans[1] == data.plan(5, epoch, 100, 1), "and known without the blocks before it"
        orders.append(found)
    assert orders[0] != orders[1]


def test_half_a_million_examples_are_one_block() -> None:
    assert [count_blocks(examples) for examples in (1, 500_000, 600_000)] == [1, 1, 2]


@pytest.mark.parametrize("weights", [None, (1.0, 2.0)])
def test_training_goes_on_inside_a_block_to_the_same_bits(
    weights: tuple[float, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in a block, at the turn of one and at the turn of an epoch."""
    monkeypatch.setattr("clearhead.data.plan.BLOCK", 16)
    files = write_text(tmp_path)
    (tmp_path / "b.txt").write_text("Another text, quite another.\n" * 30)
    texts = (files["text"], str(tmp_path / "b.txt"))
    data = DataSettings(text=texts, context=64, weights=weights, documents="line", validation_share=0.2)
    model = {"preset": "llama", "d_model": 16, "heads": 2, "kv_heads": 1, "d_ff": 32, "decoder_layers": 1}
    settings = TrainingSettings(
        steps=90, max_tokens=256, warmup=2, peak=1e-3, validate_every=1000, checkpoint_every=100, samples=0, threads=1
    )
    recipe = Recipe(data, model, TokenizerSettings(kind="characters"), settings)
    train(recipe, tmp_path / "whole", quiet=True)
    places: list[tuple[int, int, int]] = []
    for stop in (3, 4, 5, 77, 90):

        def halt(loop: Loop, stop: int = stop) -> None:
            places.append((loop.progress.epoch, loop.progress.block, loop.progress.batch))
            loop.stop = "now" if loop.progress.step == stop else ""

        outcome = train(recipe, tmp_path / "parts", attach=lambda splits, log, halt=halt: [halt], quiet=True)  # type: ignore[misc]
    assert len({block for _, block, _ in places}) > 3
    assert outcome.progress.epoch > 0
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (
            (tmp_path / run / "checkpoints" / "step_00000090" / name).read_bytes() for run in ("whole", "parts")
        )
        assert one == other, name
