"""Label smoothing and averaging of checkpoints (sections 5.4 and 6.1): worse perplexity, better answers?

The task is to read dates as people write them and to write them as ISO 8601: every answer is right or wrong, as a
translation is not. Each arm is scored at its last update, and once more with the mean of its last few weights.
"""

from functools import lru_cache
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.data.settings import DataSettings
from clearhead.data.splits import Splits
from clearhead.data.splits import build as build_data
from clearhead.lab.drawing import dots, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict, Word
from clearhead.lab.intervals import Interval, interval
from clearhead.lab.training import brief, small, train
from clearhead.training.loop import Loop

SMOOTHING = {"none": 0.0, "0.1": 0.1, "0.3": 0.3}
ARMS = {name: f"ε = {value}" if value else "all of the target on the right token" for name, value in SMOOTHING.items()}


@lru_cache(maxsize=1)
def dates(locales: tuple[str, ...], examples: int) -> Splits:
    return build_data(DataSettings(task="dates", locales=locales, examples=examples, held_out=500))


class Mean:
    """Callback: the running mean of the weights after the last few updates that are asked for."""

    def __init__(self, first: int, every: int) -> None:
        self.first, self.every, self.count = first, every, 0
        self.weights: dict[str, Tensor] = {}

    def __call__(self, loop: Loop) -> None:
        step = loop.progress.step
        if step < self.first or (loop.settings.steps - step) % self.every:
            return
        self.count += 1
        for name, value in loop.model.state_dict().items():
            old = self.weights.get(name, torch.zeros_like(value))
            self.weights[name] = old + (value - old) / self.count


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    data = dates(tuple(sizes["locales"]), sizes["examples"])
    steps = sizes["steps"]
    mean = Mean(steps * 3 // 4, max(1, steps // 20))
    config = small(data.tokenizer.size, dropout=0.1)
    settings = brief(steps, seed, peak=2e-3, label_smoothing=SMOOTHING[arm], max_tokens=sizes["max_tokens"])
    trained = train(config, data.train, settings, watch=[mean])
    last = trained.scores(data.validation)
    trained.model.load_state_dict(mean.weights)
    averaged = trained.scores(data.validation)
    found: dict[str, Any] = dict(last) | {f"mean_{name}": value for name, value in averaged.items()}
    return found


def hurts(results: Results) -> Verdict:
    loss = results.difference("0.1", "none", "loss")
    sentence = f"smoothing by 0.1 changes the unsmoothed loss by {loss} nats, from {results.mean('none', 'loss'):.3f}"
    return Verdict(word_of(loss), sentence)


def answers(results: Results) -> Verdict:
    found = {arm: results.difference(arm, "none", "exact") for arm in ("0.1", "0.3")}
    shown = ", ".join(f"{gain} (ε = {arm})" for arm, gain in found.items())
    shares = ", ".join(f"{results.interval(arm, 'exact')}" for arm in ARMS)
    return Verdict(word_of(found["0.1"]), f"it changes the share of right answers by {shown}: {shares}")


def averaging(results: Results) -> Verdict:
    shown = ", ".join(f"{mean_gain(results, arm)} (ε = {SMOOTHING[arm]:g})" for arm in ARMS)
    gains = [mean_gain(results, arm) for arm in ARMS]
    sentence = f"the mean of the last weights changes the share of right answers by {shown}"
    if all(gain.low > 0 for gain in gains):
        return Verdict("holds", sentence)
    if any(gain.low > 0 for gain in gains):
        good = ", ".join(f"{SMOOTHING[arm]:g}" for arm in ARMS if mean_gain(results, arm).low > 0)
        return Verdict("holds only if", f"ε = {good}: {sentence}")
    return Verdict("does not hold here" if any(g.high < 0 for g in gains) else "cannot tell at this size", sentence)


def word_of(change: Interval) -> Word:
    return "holds" if change.low > 0 else "does not hold here" if change.high < 0 else "cannot tell at this size"


def headline(results: Results) -> str:
    return (
        f"With ε = 0.1 the loss is {results.mean('0.1', 'loss') / results.mean('none', 'loss'):.1f} times as high, and "
        f"{results.mean('0.1', 'exact'):.1%} of the dates are right instead of {results.mean('none', 'exact'):.1%}; "
        f"averaged, {results.mean('0.1', 'mean_exact'):.1%} and {results.mean('none', 'mean_exact'):.1%}."
    )


def mean_gain(results: Results, arm: str) -> Interval:
    """What averaging does to the share of right answers, seed by seed."""
    pairs = zip(results.each(arm, "mean_exact"), results.each(arm, "exact"), strict=True)
    return interval([averaged - last for averaged, last in pairs])


def figure(results: Results) -> Figure:
    drawn, axes = panels(2, width=5.4)
    for panel, name, label in (
        (axes[0], "loss", "validation loss (nats per character)"),
        (axes[1], "exact", "share of dates that are right"),
    ):
        rows = {}
        for arm in ARMS:
            rows[f"ε = {SMOOTHING[arm]}"] = results.interval(arm, name)
            rows[f"ε = {SMOOTHING[arm]}, averaged"] = results.interval(arm, f"mean_{name}")
        dots(panel, rows, label, "Perplexity" if name == "loss" else "Answers")
    return drawn


EXPERIMENT = Experiment(
    number=15,
    name="label-smoothing",
    claim="Label smoothing hurts perplexity but improves accuracy, and averaging the last checkpoints helps.",
    parts=(
        Part(
            "Label smoothing hurts perplexity.",
            "Of ε = 0.1 against none: the 95% interval of the difference in loss lies above zero: holds; below: does "
            "not hold here; otherwise it cannot be told.",
            hurts,
        ),
        Part("Label smoothing improves accuracy.", "The same rule for the share of right answers.", answers),
        Part(
            "Averaging the last checkpoints helps.",
            "The interval of the change in right answers lies above zero for every ε: holds; for some: holds only for "
            "those; below zero for one: does not hold here; otherwise it cannot be told.",
            averaging,
        ),
    ),
    arms=ARMS,
    measured="Validation loss (unsmoothed) and share of right answers when reading dates, at the last update and for "
    "the mean of the weights over the last quarter of training.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "locales": ("en", "de", "fr"), "examples": 10_000, "steps": 300, "max_tokens": 512},
    full={
        "seeds": 5,
        "locales": ("en", "de", "fr", "es", "it", "nl", "pl", "sv", "tr", "fi"),
        "examples": 50_000,
        "steps": 1000,
        "max_tokens": 1024,
    },
    columns={
        "loss": "loss (nats)",
        "accuracy": "accuracy of characters",
        "exact": "right answers",
        "mean_loss": "loss, averaged",
        "mean_exact": "right answers, averaged",
    },
    shares={"exact": lambda sizes: 500, "mean_exact": lambda sizes: 500},
)
