"""Tasks on lists: right answers, disjoint parts, and batches that the models take."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import clearhead
from clearhead.data import IGNORE, Dataset, DataSettings, build
from clearhead.data.plan import plan_by_length
from clearhead.data.sequences import make_lists
from clearhead.errors import InputError


def lists(**changes: Any) -> DataSettings:
    return DataSettings(**{"task": "copy", "examples": 300, "held_out": 50, **changes})


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("copy", lambda numbers: numbers),
        ("reverse", lambda numbers: numbers[::-1]),
        ("sort", sorted),
        ("count", lambda numbers: [numbers.count(number) for number in numbers]),
    ],
)
def test_answers_are_right_and_parts_disjoint(task: str, answer: Callable[[list[int]], list[int]]) -> None:
    splits = build(lists(task=task))
    assert splits.test is not None
    seen = set()
    for part, size in ((splits.train, 300), (splits.validation, 50), (splits.test, 50)):
        assert len(part) == size
        for source, target in part.examples():
            numbers = [int(word) for word in source.split()]
            assert [int(word) for word in target.split()] == answer(numbers)
            assert 1 <= len(numbers) <= 12
            assert all(0 <= number < 20 for number in numbers)
            assert source not in seen
            seen.add(source)
    lengths = [len(source.split()) for source, _ in splits.test.examples()]
    assert lengths != sorted(lengths)


def test_the_task_is_the_same_every_time() -> None:
    assert build(lists()).train.examples() == build(lists()).train.examples()


def test_a_pair_becomes_shifted_input_and_labels() -> None:
    splits = build(lists(task="reverse"))
    tokenizer, dataset = splits.tokenizer, splits.train
    assert tokenizer.pad_id is not None
    by_length = sorted(range(len(dataset)), key=lambda i: len(dataset.examples()[i].source.split()))
    indices = [by_length[-1], by_length[0]]  # the longest and the shortest, so that there is padding
    batch = dataset.collate(indices)
    source, target, labels = batch.inputs["source"], batch.inputs["target"], batch.labels
    assert source.shape[1] == source[0].ne(tokenizer.pad_id).sum()
    for row, index in enumerate(indices):
        text = dataset.examples()[index]
        real = batch.inputs["source_real"][row]
        assert source[row][real].tolist() == [*tokenizer.encode_ordinary(text.source), tokenizer.eos_id]
        assert source[row][~real].eq(tokenizer.pad_id).all()
        counted = labels[row] != IGNORE
        wanted = tokenizer.encode_ordinary(text.target)
        assert labels[row][counted].tolist() == [*wanted, tokenizer.eos_id]
        assert target[row][counted].tolist() == [tokenizer.bos_id, *wanted]
        assert counted.tolist() == sorted(counted.tolist(), reverse=True)
    assert batch.count == int((labels != IGNORE).sum())


def test_without_padding_there_is_no_mask() -> None:
    dataset = build(lists(shortest=5, longest=5)).train
    assert set(dataset.collate([0, 1, 2]).inputs) == {"source", "target"}


@pytest.mark.parametrize("task", ["sort", "count"])
def test_models_take_the_batches(task: str) -> None:
    splits = build(lists(task=task))
    changes = {"head": splits.train.head} if splits.train.head else {}
    config = clearhead.configure(
        "tiny", kind=splits.train.kind, vocab_size=splits.tokenizer.size, d_model=16, heads=2, d_ff=16, **changes
    )
    model = clearhead.build(config)
    batch = splits.train.collate(splits.train.plan(1, 0, 100)[0])
    logits = model(**batch.inputs)
    assert logits.shape[:2] == batch.labels.shape
    assert batch.labels.max() < logits.shape[2]
    counted = batch.labels != IGNORE
    assert torch.nn.functional.cross_entropy(logits[counted], batch.labels[counted]).isfinite()


def test_counting_labels_stand_at_their_tokens() -> None:
    dataset = build(lists(task="count", symbols=3)).train
    assert dataset.head == {"kind": "tokens", "classes": 13}
    batch = dataset.collate([0, 1, 2, 3])
    real = batch.inputs["real"]
    assert torch.equal(batch.labels != IGNORE, real)
    for tokens, labels, kept in zip(batch.inputs["tokens"], batch.labels, real, strict=True):
        row = tokens[kept].tolist()
        assert labels[kept].tolist() == [row.count(token) for token in row]
    assert batch.count == int(real.sum())


@cache
def two_hundred() -> Dataset:
    return build(lists(examples=200)).train


@given(seed=st.integers(0, 2**40), epoch=st.integers(0, 99), max_tokens=st.integers(13, 400))
def test_a_plan_holds_every_example_once_within_its_bounds(seed: int, epoch: int, max_tokens: int) -> None:
    dataset = two_hundred()
    plan = dataset.plan(seed, epoch, max_tokens)
    assert sorted(index for batch in plan for index in batch) == list(range(200))
    for indices in plan:
        batch = dataset.collate(indices)
        assert batch.count <= max_tokens
        assert batch.labels.numel() <= max(1.25 * max_tokens, batch.labels.shape[1])
        assert batch.inputs["source"].numel() <= max(4 * max_tokens, batch.inputs["source"].shape[1])


def test_the_plan_is_a_function_of_seed_and_epoch() -> None:
    dataset = build(lists()).train
    plan = dataset.plan(3, 5, 128)
    assert plan == build(lists()).train.plan(3, 5, 128)
    for other in (dataset.plan(4, 5, 128), dataset.plan(3, 6, 128)):
        assert {frozenset(batch) for batch in other} != {frozenset(batch) for batch in plan}, "other batches"
        assert other != plan


def test_lengths_come_in_random_order() -> None:
    dataset = build(lists(examples=2000)).train
    widths = [dataset.collate(batch).labels.shape[1] for batch in dataset.plan(0, 0, 128)]
    assert abs(np.corrcoef(widths, range(len(widths)))[0, 1]) < 0.3


def test_cuts_move_from_epoch_to_epoch() -> None:
    """Even where no two examples have the same length, so that their order is always the same."""
    lengths = np.arange(1, 60)
    plans = [plan_by_length(lengths, lengths, 0, epoch, 256) for epoch in range(6)]
    assert len({frozenset(map(tuple, map(sorted, plan))) for plan in plans}) > 2


def test_short_lists_are_spread_over_all_parts() -> None:
    splits = build(lists(symbols=2, longest=8))
    assert splits.test is not None
    means = [np.mean([len(source) for source, _ in part.examples()]) for part in (splits.train, splits.test)]
    assert abs(means[0] - means[1]) < 0.7


def test_batches_are_nearly_full() -> None:
    dataset = build(lists(examples=2000)).train
    counts = sorted(dataset.collate(batch).count for batch in dataset.plan(0, 0, 256))
    assert all(count > 256 - 14 for count in counts[2:]), "all but the first cut and the last"


def test_ranks_and_micro_batches_agree_with_the_whole() -> None:
    """A part of a batch, collated alone, holds the same tokens as in the whole."""
    dataset = build(lists()).train
    indices = dataset.plan(0, 0, 128)[0]
    whole = dataset.collate(indices)
    parts = [dataset.collate(indices[rank::2]) for rank in range(2)]
    assert sum(part.count for part in parts) == whole.count
    for rank, part in enumerate(parts):
        width = part.labels.shape[1]
        assert torch.equal(whole.labels[rank::2, :width], part.labels)


def test_all_the_lists_there_are_can_be_asked_for() -> None:
    lists = make_lists(14, symbols=2, shortest=1, longest=3)
    assert len(set(lists)) == 14
    assert {len(numbers) for numbers in lists} == {1, 2, 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symbols": 2, "longest": 3}, "only 14 different lists of 1 to 3 numbers below 2"),
        ({"shortest": 9, "longest": 8}, "data.shortest = 9 is more than data.longest = 8"),
        ({"examples": 0}, "data.examples must be at least 1"),
        ({"text": "a.txt"}, "data.text means nothing for task = 'copy'"),
        ({"context": 64}, "data.context means nothing"),
    ],
)
def test_impossible_tasks_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(lists(**changes))


def test_a_batch_too_small_for_an_example_is_refused() -> None:
    with pytest.raises(InputError, match=r"13 target tokens.*max_tokens = 12"):
        build(lists()).train.plan(0, 0, 12)
