"""The copy test: "if two layers cannot learn to copy within 1,000 steps, your masking is wrong". How good a test is it?

Each arm is this package's encoder-decoder with one bug planted in it, of a kind that does not crash. It learns to copy
short lists; then it writes copies of new ones by greedy search. A bug is caught if the copies are wrong. Those that
pass are then held against properties that a right model has whatever its weights are: no position sees its future,
padding changes nothing, neighbours in the batch change nothing.
"""

from dataclasses import replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.data.batch import Batch
from clearhead.data.pairs import Pairs
from clearhead.decoding.greedy import greedy
from clearhead.decoding.steps import ModelSteps
from clearhead.lab.bugs import BUGS
from clearhead.lab.drawing import panels
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict
from clearhead.lab.training import brief, lists, small, train

PASSED = 0.95  # of the copies right


ARMS = {name: f"{bug.what} ({bug.kind})" for name, bug in BUGS.items()}


class Unshifted(Pairs):
    """Pairs whose decoder input is the target itself."""

    def collate(self, indices: Any, seed: int = 0, epoch: int = 0) -> Batch:
        batch = super().collate(indices, seed, epoch)
        ahead = batch.labels.masked_fill(batch.labels < 0, self.pad_id)
        return replace(batch, inputs=batch.inputs | {"target": ahead})


def copies(model: Any, data: Any, count: int) -> float:
    """The share of lists that greedy search copies exactly."""
    tokenizer = data.tokenizer
    batch = data.collate(range(count))
    steps = ModelSteps(model, batch.inputs["source"], batch.inputs.get("source_padding"))
    limit = batch.labels.size(1) + 2
    written = greedy(steps, [[tokenizer.bos_id]] * count, [limit] * count, tokenizer.eos_id)
    texts = data.examples(count)
    return sum(tokenizer.decode(w.tokens) == text.target for w, text in zip(written, texts, strict=True)) / count


@torch.no_grad()
def properties(model: Any, data: Any) -> dict[str, float]:
    """How far logits move (root mean square) that should not: by the future, by padding, by neighbours."""
    batch = data.collate([int(data.targets.lengths.argmax()), *range(7)])
    source, target = batch.inputs["source"], batch.inputs["target"]
    real = batch.inputs.get("source_padding", torch.ones_like(source, dtype=torch.bool))
    logits = model(source, target, real)
    later = target.clone()
    later[:, 3:] = (later[:, 3:] + 1) % model.config.vocab_size
    longer = torch.cat((source, torch.zeros_like(source[:, :2])), 1)
    more = torch.cat((real, torch.zeros_like(real[:, :2])), 1)
    order = torch.tensor([0, 7, 6, 5, 4, 3, 2, 1])

    def moved(other: Tensor, rows: slice, places: slice) -> float:
        return float((other - logits)[rows, places].square().mean().sqrt())

    everything = slice(None)
    return {
        "future": moved(model(source, later, real), everything, slice(0, 3)),
        "padding": moved(model(longer, target, more), everything, everything),
        "neighbours": moved(model(source[order], target[order], real[order]), slice(0, 1), everything),
    }


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    bug = BUGS[arm]
    data = lists("copy", longest=sizes["longest"])
    training: Any = data.train
    if bug.unshifted:
        training = Unshifted(training.texts, training.tokenizer)
    config = small(data.tokenizer.size, kernels="plain", **(bug.config or {}))
    settings = brief(sizes["steps"], seed, peak=2e-3)
    trained = train(config, training, settings, attend=bug.attend, change=bug.change)
    model = trained.model.eval()
    validation: Any = data.validation
    seen = Unshifted(validation.texts, validation.tokenizer) if bug.unshifted else validation
    forced = trained.scores(seen)
    exact = 0.0 if trained.diverged else copies(model, data.test, sizes["copies"])
    return {
        "exact": exact,
        "loss": forced["loss"],
        "accuracy": forced["accuracy"],
        **properties(model, data.validation),
    }


def caught(results: Results, arm: str) -> bool:
    return results.mean(arm, "exact") < PASSED


def verdict(results: Results) -> Verdict:
    bugs = [arm for arm in BUGS if arm != "healthy"]
    failed = [arm for arm in bugs if caught(results, arm)]
    passed = [arm for arm in bugs if arm not in failed]
    visible = [
        arm for arm in passed if max(results.mean(arm, name) for name in ("future", "padding", "neighbours")) > 1e-3
    ]
    sentence = (
        f"copying catches {len(failed)} of {len(bugs)} planted bugs; these pass: {', '.join(passed) or 'none'}. Of "
        f"those, "
        f"{', '.join(visible) or 'none'} break a property that can be tested without training"
    )
    if caught(results, "healthy"):
        return Verdict("cannot tell at this size", f"the healthy model does not pass either; {sentence}")
    others = [arm for arm in failed if BUGS[arm].kind != "mask"]
    quiet = [arm for arm in passed if BUGS[arm].kind == "mask"]
    if not others and not quiet:
        return Verdict("holds", sentence)
    if others and quiet:
        return Verdict(
            "does not hold here",
            f"it fails without a masking bug ({', '.join(others)}), and passes with one; {sentence}",
        )
    reason = f"failing may also mean {', '.join(others)}" if others else f"passing may hide {', '.join(quiet)}"
    return Verdict("holds only if", f"one reads it with care: {reason}; {sentence}")


def figure(results: Results) -> Figure:
    drawn, (axes,) = panels(1, width=8.5, height=6.2)
    order = sorted(BUGS, key=lambda arm: (arm != "healthy", -results.mean(arm, "exact")))
    for row, arm in enumerate(order):
        value, passes = results.interval(arm, "exact"), not caught(results, arm)
        colour = "#009E73" if passes else "#D55E00"
        axes.barh(row, value.mean, color=colour, height=0.6, hatch="" if passes else "//", edgecolor="white")
        axes.plot([max(0, value.low), min(1, value.high)], [row, row], color="black", linewidth=1)
        moved = [name for name in ("future", "padding", "neighbours") if results.mean(arm, name) > 1e-3]
        note = f"moved by {', '.join(moved)}" if moved else "no property broken"
        axes.annotate(
            f"{value.mean:.2f}   {note}",
            (max(0.0, value.mean), row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_yticks(range(len(order)), [f"{arm}{' *' if BUGS[arm].kind == 'mask' else ''}" for arm in order])
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(0, 1.6)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.axvline(PASSED, color="0.4", linewidth=1, linestyle=":")
    axes.set_xlabel(f"share of lists copied exactly (right of the dotted line, {PASSED}: passes)")
    axes.set_title(f"{results.sizes['steps']} updates of copying; * a bug of masking; hatched: caught")
    return drawn


EXPERIMENT = Experiment(
    number=16,
    name="copy-test",
    claim="If a two-layer Transformer cannot learn to copy within 1,000 steps, something is wrong with the masking.",
    arms=ARMS,
    measured="The share of new lists that greedy search copies exactly, after training with the bug; and how far "
    "logits "
    "move by what should not move them: the future, more padding, the other lists of the batch.",
    rule="A bug is caught if fewer than 95% of the copies are right, on average over the seeds. If the healthy model "
    "is "
    "caught too: cannot tell. Every masking bug caught and no other: holds. Other bugs caught as well, or some masking "
    "bugs not: holds only with care. Both: does not hold here.",
    measure=measure,
    verdict=verdict,
    figure=figure,
    quick={"seeds": 1, "steps": 400, "longest": 8, "copies": 100},
    full={"seeds": 3, "steps": 1000, "longest": 12, "copies": 300},
    columns={
        "exact": "share copied exactly",
        "accuracy": "accuracy as trained",
        "future": "moved by the future",
        "padding": "moved by padding",
        "neighbours": "moved by neighbours",
    },
)
