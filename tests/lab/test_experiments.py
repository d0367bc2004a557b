"""The effects themselves, in small: what each experiment is there to show must be there."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.errors import InputError
from clearhead.lab.catalogue import find
from clearhead.lab.experiment import MACHINE, Results
from clearhead.lab.experiments import causal_mask, numerics, recurrence, scaling
from clearhead.lab.experiments.copy_test import END, HEALTHY, PAD, START, is_masking, some_lists
from clearhead.lab.experiments.mask_broadcast import Squares
from clearhead.lab.experiments.norm_and_residual import gradients
from clearhead.lab.experiments.positions import gradients as position_gradients
from clearhead.lab.experiments.recurrence import COPIED, RECALL, Recall
from clearhead.lab.runner import run
from clearhead.lab.sizing import of_size
from clearhead.lab.training import brief, lists, small, train
from clearhead.model import build, count_parameters

QUIET = "cross-attention ignores the source padding"


def run_small(name: str, tmp_path: Path, seeds: int = 1, **changes: Any) -> Results:
    """The quick form of an experiment, made smaller still."""
    experiment = find(name)
    sizes = dict(experiment.quick)
    assert changes.keys() <= sizes.keys()
    before = experiment.quick
    object.__setattr__(experiment, "quick", sizes | changes)
    try:
        results = run(experiment, tmp_path, quick=True, seeds=seeds, jobs=1)
        assert results is not None
        assert all(verdict.sentence for verdict in experiment.verdicts(results))
        assert experiment.headline(results)
        assert experiment.figure(results).axes
    finally:
        object.__setattr__(experiment, "quick", before)
    return results


def test_scaling_saturates_without_its_root(tmp_path: Path) -> None:
    results = run_small("scaling", tmp_path, trained_d_k=(16,), steps=10, points=5)
    entropy = {arm: [point.mean for point in results.curve(arm, "entropy")] for arm in scaling.ARMS}
    variance = [point.mean for point in results.curve("unscaled", "variance")]
    assert entropy["unscaled"] == sorted(entropy["unscaled"], reverse=True)  # falls with d_k
    assert entropy["unscaled"][-1] < 0.1 < 0.8 < min(entropy["scaled"])
    for width, found in zip(results.sizes["d_k"], variance, strict=True):
        assert found == pytest.approx(width, rel=0.1)  # q·k has variance d_k
    assert entropy["unscaled, small start"] == pytest.approx(entropy["scaled"])  # the same function at the start


def test_scaled_and_small_start_are_one_function_at_the_start() -> None:
    """Dividing the query projections by √d_k does exactly what dividing the scores does."""
    config = small(20, kind="decoder", d_model=32, heads=2)
    tokens = torch.randint(0, 20, (2, 9))
    torch.manual_seed(0)
    scaled = build(config)
    torch.manual_seed(0)
    shrunk = build(config, scaling.unscaled_attention)
    shrunk_not_yet = shrunk(tokens)
    scaling.shrink_queries(shrunk)
    assert not torch.allclose(shrunk_not_yet, scaled(tokens), atol=1e-3)
    assert torch.allclose(shrunk(tokens), scaled(tokens), atol=1e-5)


def test_wrong_causal_masks_leak_and_the_right_one_does_not(tmp_path: Path) -> None:
    results = run_small("causal-mask", tmp_path, steps=120, context=32, characters=60_000, windows=32)
    assert results.mean("right", "leak") == 0
    for arm in causal_mask.WRONG:
        assert results.mean(arm, "leak") > 1e-3
    # without a mask the loss collapses, and the text without a future shows what is really known
    assert results.mean("no mask", "seen") < 0.5 * results.mean("right", "seen")
    assert results.mean("no mask", "alone") > results.mean("right", "alone")
    assert results.mean("after the softmax", "row_sum") < 0.7
    assert results.mean("right", "row_sum") == pytest.approx(1)


def test_positions_in_bfloat16_are_right_on_toys_and_wrong_on_long_inputs(tmp_path: Path) -> None:
    results = run_small("numerics", tmp_path, lengths=(32, 64, 640))
    wrong = [point.mean for point in results.curve("positions in bfloat16", "error_float32")]
    right = [point.mean for point in results.curve("plain", "error_float32")]
    assert max(right) < 1e-5
    assert max(wrong[:2]) < 1e-5 < 0.1 < wrong[2]
    assert [verdict.word for verdict in find("numerics").verdicts(results)] == ["holds"]
    assert results.mean("masks added twice", "lost_float32") == pytest.approx(0.5)  # the padded one of two sequences
    assert results.mean("naive softmax", "lost_float16") > 0


def test_exact_in_float64() -> None:
    """Every arm's attention, in float64 and with right positions, is the plain one."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 1, 12, 8, dtype=torch.float64) for _ in range(3))
    causal, real = torch.ones(12, 12, dtype=torch.bool).tril(), torch.ones(2, 1, 1, 12, dtype=torch.bool)
    for mix in numerics.MIX.values():
        assert torch.allclose(mix(q, k, v, causal, real), numerics.plain(q, k, v, causal, real), atol=1e-12)


def test_cached_decoding_agrees_and_grouped_heads_shrink_it(tmp_path: Path) -> None:
    results = run_small("kv-cache", tmp_path, lengths=(16, 32), tokens=2, width=64, layers=1)
    for arm in ("8 kv heads", "2 kv heads", "1 kv head"):
        assert results.mean(arm, "disagreement") < 1e-4
    # one layer, keys and values, 64 floats of four bytes for each
    assert results.mean("8 kv heads", "bytes") == 2 * 64 * 4
    assert results.mean("8 kv heads", "bytes") == 8 * results.mean("1 kv head", "bytes")
    # cross-attention keeps as much for each token of the source
    assert results.mean("8 kv heads", "source_bytes") == 2 * 64 * 4 == 8 * results.mean("1 kv head", "source_bytes")
    assert results.mean("no cache", "bytes") == results.mean("no cache", "source_bytes") == 0


def test_gradients_reach_far_unless_alibi_fades_them() -> None:
    """Untrained, sinusoids send gradient to near and far keys alike; ALiBi's scores fall with distance, so does it."""
    found = {
        kind: position_gradients(small(50, kind="decoder", positions={"kind": kind}), 1, 128)
        for kind in ("sinusoidal", "rope", "alibi")
    }
    for kind in ("sinusoidal", "rope"):
        assert min(found[kind][0]) > 0.3
    for into in found["alibi"]:
        assert into[-1] < 0.2 < into[0]
        assert into.index(max(into)) <= 1


def test_training_to_recall_ends_when_it_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"rows": 4, "steps": 30}
    assert recurrence.recall("lstm", 1, 3, sizes)[0] == 30  # not within so few updates
    monkeypatch.setattr(recurrence, "LEARNED", 100.0)
    assert recurrence.recall("lstm", 1, 3, sizes)[0] == 20


def test_same_seed_same_digits(tmp_path: Path) -> None:
    """Twice the same cell: every number but times and memory repeats to the last digit."""
    experiment = find("recurrence")
    sizes = dict(experiment.quick) | {"lengths": (16,), "rounds": 1, "distances": (4,), "steps": 5}
    one, two = (experiment.measure("transformer", 1, sizes) for _ in range(2))
    assert {key: value for key, value in one.items() if not key.startswith(MACHINE)} == {
        key: value for key, value in two.items() if not key.startswith(MACHINE)
    }
    other = experiment.measure("transformer", 2, sizes)
    assert other["recalled"] != one["recalled"] or other["farthest"] != one["farthest"]


def test_gradients_vanish_without_residual_and_norm() -> None:
    data = lists("count", symbols=6, longest=10)
    lost = gradients("neither", 12, data, "gpt2", 1)
    kept = gradients("pre-norm", 12, data, "gpt2", 1)
    assert lost[0] < 1e-10
    assert 0.1 < kept[0] / kept[-1] < 10


def test_square_batches_are_square() -> None:
    data = lists("count", symbols=6, longest=12, examples=2000)
    squares = Squares.of(data.train)
    batches = squares.plan(1, 0, 0)
    assert batches
    assert {tuple(squares.collate(batch).labels.shape) for batch in batches[:20]} == {(12, 12)}
    everyone = [index for batch in batches for index in batch]
    assert len(everyone) == len(set(everyone))


def test_recall_asks_for_what_was_shown() -> None:
    batch = Recall(5, 4).collate([3, 4])
    tokens = batch.inputs["tokens"]
    assert torch.equal(batch.labels[:, -COPIED:], tokens[:, :COPIED])
    assert (tokens[:, COPIED + 5] == RECALL).all()
    assert batch.count == int((batch.labels >= 0).sum()) == 2 * COPIED


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_equal_parameters_are_equal(ratio: int) -> None:
    config = of_size(120_000, 97, ratio)
    assert count_parameters(config) == pytest.approx(120_000, rel=0.01)
    assert config.d_ff / config.d_model == pytest.approx(ratio, rel=0.25)


@pytest.mark.parametrize("form", ["quick", "full"])
def test_every_vocabulary_has_a_model_of_the_size(form: str) -> None:
    """The largest leaves little for the layers; what comes out must still be a model, and of the same size."""
    sizes = getattr(find("vocabulary"), form)
    for vocabulary in sizes["vocabularies"]:
        config = of_size(sizes["parameters"], vocabulary, step=4, heads=2)
        assert count_parameters(config) == pytest.approx(sizes["parameters"], rel=0.001)
        assert 2 < config.d_ff / config.d_model < 8
    with pytest.raises(InputError, match="no decoder with 1,000 parameters"):
        of_size(1000, 32_000)


@pytest.mark.long
def test_copying_catches_some_bugs_and_the_doctor_finds_others() -> None:
    """After a short training the healthy model copies; one without a mask does not, and one that lets padding be seen
    does, but the doctor finds it."""
    sizes = dict(find("copy-test").quick) | {"longest": 3, "steps": 120, "copies": 20}
    found: dict[str, dict[str, Any]] = {
        arm: dict(find("copy-test").measure(arm, 1, sizes)) for arm in (HEALTHY, "decoder without its mask", QUIET)
    }
    assert found[HEALTHY]["exact"] >= 0.95
    assert found[HEALTHY]["doctor"] == 0
    assert found["decoder without its mask"]["exact"] < 0.5 < found["decoder without its mask"]["accuracy"]
    assert found[QUIET]["exact"] >= 0.95
    assert found[QUIET]["doctor"] == 1


def test_copies_are_copies() -> None:
    source, target = some_lists(50, 6)
    for row, wanted in zip(source.tolist(), target.tolist(), strict=True):
        symbols = [token for token in row if token != PAD]
        padding = [PAD] * (6 - len(symbols))
        assert row == symbols + padding
        assert wanted == [START, *symbols, END, *padding]
        assert symbols
        assert all(token not in (START, END) for token in symbols)


def test_every_planted_bug_is_an_arm() -> None:
    """At least fifteen, with and without masks, each of which the mutants' table can plant."""
    arms = [arm for arm in find("copy-test").arms if arm != HEALTHY]
    assert len(arms) >= 15
    assert 5 <= sum(map(is_masking, arms)) <= len(arms) - 5
    assert is_masking("decoder without its mask")
    assert not is_masking("scores not scaled")


def test_chance_is_the_entropy_of_the_tokens() -> None:
    from clearhead.lab.experiments.warm_up import guessing

    data = lists("reverse", longest=10)
    assert 0.5 * math.log(20) < guessing(data.validation) < math.log(data.tokenizer.size)


def test_training_is_a_function_of_the_seed() -> None:
    data = lists("sort", longest=10)
    config = small(data.tokenizer.size, dropout=0.1)
    one, again, other = (train(config, data.train, brief(4, seed)).losses for seed in (1, 1, 2))
    assert one == again
    assert one[0] != other[0]


def test_a_breakdown_is_a_result() -> None:
    """A gradient that is not finite ends the training, says when, and scores as the worst."""
    data = lists("sort", longest=10)
    trained = train(small(data.tokenizer.size), data.train, brief(20, 1, peak=1e30, warmup=0, clip=0.0))
    assert trained.diverged is not None
    assert len(trained.losses) == trained.diverged - 1
    assert trained.scores(data.validation)["exact"] == 0
