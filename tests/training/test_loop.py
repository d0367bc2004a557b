"""The loop against an update written out by hand, and what it does when something goes wrong."""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearhead.data.batch import IGNORE, Batch
from clearhead.errors import InputError
from clearhead.training.config import TrainingSettings
from clearhead.training.distributed import Ranks
from clearhead.training.loop import GROWTH, Loop, Objective, Progress, seed_of
from clearhead.training.optimizer import build_optimizers
from clearhead.training.report import Metrics, read_metrics
from clearhead.training.validate import Validation, evaluate
from tests.training import small


def settings(**changes: object) -> TrainingSettings:
    usual = {"steps": 6, "max_tokens": 96, "peak": 3e-3, "warmup": 3, "clip": 0.5, "label_smoothing": 0.1}
    # the bias of the keys has no gradient but rounding, which Adam with a tiny ε would blow up to full steps
    usual["epsilon"] = 1e-6
    return TrainingSettings(**{**usual, **changes})  # type: ignore[arg-type]


def trained(loop: Loop) -> dict[str, torch.Tensor]:
    loop.run()
    return {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}


def test_the_loop_does_what_pytorch_does_by_hand() -> None:
    """F.cross_entropy with its own mean and smoothing, torch's Adam and clipping, on the same batches."""
    chosen, data = settings(), small.splits().train
    torch.manual_seed(0)
    model = small.model().double()
    reference = copy.deepcopy(model).train()
    ours = trained(Loop(model, data, chosen))

    adam = torch.optim.Adam(reference.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-6)
    plan = data.plan(chosen.seed, 0, chosen.max_tokens)
    for step in range(1, 7):
        batch = data.collate(plan[step - 1], chosen.seed, 0)
        logits = reference(**batch.inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), label_smoothing=0.1, ignore_index=-100)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
        adam.param_groups[0]["lr"] = 3e-3 * min(step / 3, math.sqrt(3 / step))
        adam.step()
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pieces", [2, 5, 40])
def test_accumulation_weighs_every_token_the_same(pieces: int) -> None:
    """More pieces than examples, too: pieces without an example count nothing."""
    data = small.splits().train
    torch.manual_seed(0)
    model = small.model().double()
    again = copy.deepcopy(model)
    whole = trained(Loop(model, data, settings()))
    parts = trained(Loop(again, data, settings(accumulate=pieces)))
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-9, atol=1e-12)


def test_dropout_is_a_function_of_seed_and_step() -> None:
    data = small.splits().train
    torch.manual_seed(0)
    model = small.model(dropout=0.3)
    first, second, other = (copy.deepcopy(model) for _ in range(3))
    one = trained(Loop(first, data, settings()))
    torch.rand(7)  # what was drawn before must not matter
    two = trained(Loop(second, data, settings()))
    three = trained(Loop(other, data, settings(seed=2)))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["embedding.weight"], three["embedding.weight"])


def test_every_update_draws_other_numbers() -> None:
    seeds: list[int] = []
    loop = Loop(small.model(dropout=0.3), small.splits().train, settings(steps=5, accumulate=2))
    loop.callbacks = [lambda loop: seeds.append(torch.initial_seed())]
    loop.run()
    assert len(set(seeds)) == 5


def test_seeds_depend_on_every_part() -> None:
    different = [(1, 2, 0, 0), (2, 1, 0, 0), (1, 2, 1, 0), (1, 2, 0, 1), (12, 0, 0), (1, 20, 0)]
    seeds = {seed_of(*parts) for parts in different}
    assert len(seeds) == len(different)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_stops_before_the_update(bad: float) -> None:
    model = small.model()
    loop = Loop(model, small.splits().train, settings(steps=5))
    loop.callbacks = [lambda loop: poison(loop, bad) if loop.progress.step == 2 else None]
    with pytest.raises(InputError, match=r"step 3 is not finite .* nothing was updated.*examples, first .*Try a lower"):
        loop.run()
    assert loop.progress.step == 2
    fresh = {name: tensor for name, tensor in model.state_dict().items() if "norm" not in name}
    assert all(tensor.isfinite().all() for name, tensor in fresh.items())


def poison(loop: Loop, bad: float) -> None:
    with torch.no_grad():
        loop.model.get_parameter("decoder.norm.weight")[0] = bad


def test_float16_begins_with_the_scale_of_torch_and_raises_it_as_often() -> None:
    theirs = torch.amp.GradScaler("cpu")
    assert (Progress().scale, GROWTH) == (theirs.get_scale(), theirs.get_growth_interval())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_only_matrices_decay_and_every_parameter_is_trained_once(optimizer: str) -> None:
    model = small.model()
    optimizers = build_optimizers(
        model, settings(optimizer=optimizer, weight_decay=0.0 if optimizer == "adam" else 0.1)
    )

    def step(gradient: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor]:
        """One step at a rate of 0.5; what the parameters were before."""
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        for p in model.parameters():
            p.grad = gradient(p)
        for one in optimizers:
            for group in one.param_groups:
                group["lr"] = 0.5
            one.step()
        return before

    before = step(torch.zeros_like)  # nothing but the decay, and that once
    for name, p in model.named_parameters():
        decays = optimizer != "adam" and not name.endswith("bias") and "norm" not in name
        torch.testing.assert_close(p.detach(), before[name] * (0.95 if decays else 1.0), msg=name)
    before = step(torch.ones_like)
    assert all((p != before[name]).any() for name, p in model.named_parameters())


def test_a_callback_can_stop_the_loop_and_the_loop_can_go_on() -> None:
    def stop(loop: Loop) -> None:
        loop.stop = "enough" if loop.progress.step == 3 else ""

    loop = Loop(small.model(), small.splits().train, settings(steps=5), callbacks=[stop])
    loop.run()
    assert loop.progress.step == 3
    loop.stop = ""
    loop.run()
    assert loop.progress.step == 5


def test_the_seconds_of_all_updates_are_counted() -> None:
    started = time.perf_counter()
    loop = Loop(small.model(), small.splits().train, settings(steps=3), progress=Progress(seconds=100.0))
    loop.callbacks = [lambda loop: time.sleep(0.05)]  # what is done between updates is not training
    loop.run()
    assert 100 < loop.progress.seconds < 100 + time.perf_counter() - started - 0.15


def test_every_example_is_seen_once_an_epoch() -> None:
    data = small.splits().train
    loop = Loop(small.model(), data, settings(steps=1000))
    seen: list[int] = []
    while loop.progress.epoch < 2:
        seen += loop.next_batch()
        loop.progress.batch += 1
    assert sorted(seen[: 2 * len(data)]) == sorted([*range(len(data)), *range(len(data))])


def test_validation_is_the_plain_loss_and_exact_is_what_greedy_search_would_score() -> None:
    parts = small.splits()
    torch.manual_seed(0)
    chosen = settings(steps=100, peak=1e-2)
    loop = Loop(small.model(dropout=0.1), parts.train, chosen)
    loop.run()
    scores = evaluate(loop.objective, parts.validation, parts.validation.plan(0, 0, 50), Ranks())
    model = loop.model.eval()
    total = count = right = exact = 0.0
    for index in range(len(parts.validation)):
        batch = parts.validation.collate([index])
        logits = model(**batch.inputs)
        total += F.cross_entropy(logits[0], batch.labels[0], reduction="sum").item()
        count += batch.count
        right += (logits[0].argmax(-1) == batch.labels[0]).sum().item()
        exact += greedy(model, batch) == batch.labels[0].tolist()
    assert scores["loss"] == pytest.approx(total / count, rel=1e-5)
    assert scores["token_accuracy"] == pytest.approx(right / count)
    assert scores["exact"] == pytest.approx(exact / len(parts.validation))
    assert 0.05 < scores["exact"] < 1 or scores["token_accuracy"] < 1  # otherwise this test would compare ones


def test_validation_counts_tokens_and_whole_sequences() -> None:
    parts = small.splits()
    torch.manual_seed(0)
    model = small.model().eval()
    with torch.no_grad():
        model.get_parameter("embedding.weight").mul_(3)  # so that some answers are right
    scores = evaluate(Objective(model, 0.1, torch.float32), parts.validation, parts.validation.plan(0, 0, 50), Ranks())
    right: list[list[bool]] = []
    for index in range(len(parts.validation)):
        batch = parts.validation.collate([index])
        right.append((model(**batch.inputs)[0].argmax(-1) == batch.labels[0]).tolist())
    assert scores["token_accuracy"] == pytest.approx(sum(map(sum, right)) / sum(map(len, right)))
    assert scores["exact"] == pytest.approx(sum(map(all, right)) / len(right))
    assert 0 < scores["token_accuracy"] < 1


def test_what_is_remembered_does_not_depend_on_who_reports(tmp_path: Path) -> None:
    remembered, losses = [], []
    metrics = Metrics(tmp_path / "metrics.jsonl")
    for callbacks in ([lambda loop: losses.append(loop.update.loss)], [metrics], [metrics, metrics]):
        torch.manual_seed(0)
        stop = partial(stop_at, 13)  # before the last report is due
        loop = Loop(small.model(), small.splits().train, settings(steps=20, log_every=5), callbacks=[*callbacks, stop])
        loop.run()
        remembered.append(replace(loop.progress, seconds=0.0))
    assert remembered[0] == remembered[1] == remembered[2]
    assert (remembered[0].loss_sum, remembered[0].loss_count) == (sum(losses[10:]), 3)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows[:2]] == [5, 10]
    assert [row["loss"] for row in rows[:2]] == [sum(losses[:5]) / 5, sum(losses[5:10]) / 5]


def stop_at(step: int, loop: Loop) -> None:
    loop.stop = "interrupted" if loop.progress.step == step else ""


def greedy(model: torch.nn.Module, batch: Batch) -> list[int]:
    target = batch.inputs["target"][:, :1]
    for _ in range(batch.labels.size(1)):
        chosen = model(batch.inputs["source"], target)[:, -1:].argmax(-1)
        target = torch.cat((target, chosen), 1)
    return target[0, 1:].tolist()


class Blank:
    """The copy task, but with nothing to predict in the batches of these numbers."""

    def __init__(self, blank: range) -> None:
        self.data, self.blank, self.asked = small.splits().train, blank, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def __len__(self) -> int:
        return len(self.data)

    def collate(self, indices: Sequence[int], seed: int = 0, epoch: int = 0) -> Batch:
        batch, self.asked = self.data.collate(indices, seed, epoch), self.asked + 1
        if self.asked - 1 not in self.blank:
            return batch
        return Batch(batch.inputs, torch.full_like(batch.labels, IGNORE), 0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_with_nothing_to_predict_changes_nothing(smoothing: float, tmp_path: Path) -> None:
    metrics, rows = Metrics(tmp_path / "metrics.jsonl"), tmp_path / "metrics.jsonl"
    chosen = settings(steps=4, log_every=1, validate_every=4, label_smoothing=smoothing)
    loop = Loop(small.model(), Blank(range(1, 3)), chosen, callbacks=[metrics])
    loop.one_update()
    before = {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}
    for _ in range(2):
        loop.one_update()
        metrics(loop)
        assert loop.update.skipped
        assert all(torch.equal(tensor, before[name]) for name, tensor in loop.model.state_dict().items())
    loop.run()
    assert loop.progress.step == 4
    assert not all(torch.equal(tensor, before[name]) for name, tensor in loop.model.state_dict().items())
    assert [row["loss"] is None for row in read_metrics(rows)] == [True, True, False]
    assert "NaN" not in rows.read_text()


def test_a_validation_set_with_nothing_to_predict_is_named_at_the_start() -> None:
    with pytest.raises(InputError, match=r"nothing to predict in any of 120 examples, of which the first is copy task"):
        Validation(Blank(range(1000)), 96)


def test_patience_ends_a_run_that_no_longer_improves() -> None:
    parts = small.splits()
    chosen = settings(steps=50, validate_every=2, patience=3, schedule="constant", peak=1e-30, warmup=0)
    loop = Loop(small.model(), parts.train, chosen, callbacks=[Validation(parts.validation, 96)])
    loop.run()
    assert loop.progress.step == 8  # the first validation is the best, three more are not better
    assert loop.stop == "no better validation loss for 3 validations"
