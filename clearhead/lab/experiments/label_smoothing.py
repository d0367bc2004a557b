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
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict, Word
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


def verdict(results: Results) -> Verdict:
    loss = results.difference("0.1", "none", "loss")
    right = results.difference("0.1", "none", "exact")
    gain = mean_gain(results, "none")
    shown = ", ".join(f"{mean_gain(results, arm)} (ε = {SMOOTHING[arm]:g})" for arm in ARMS)
    sentence = (
        f"smoothing by 0.1 changes the loss by {loss} nats and the share of right answers by {right} (to "
        f"{results.mean('0.1', 'exact'):.3f} from {results.mean('none', 'exact'):.3f}); averaging changes the share of "
        f"right answers by {shown}"
    )
    smoothing = part(loss.low > 0 and right.low > 0, loss.high < 0 or right.high < 0)
    averaging = part(gain.low > 0, gain.high < 0)
    if smoothing == averaging:
        return Verdict(smoothing, sentence)
    if "holds" in (smoothing, averaging):
        which = "smoothing" if smoothing == "holds" else "averaging"
        return Verdict("holds only if", f"one speaks of {which}: {sentence}")
    return Verdict("cannot tell at this size", sentence)


def part(yes: bool, no: bool) -> Word:
    return "holds" if yes else "does not hold here" if no else "cannot tell at this size"


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
    arms=ARMS,
    measured="Validation loss (unsmoothed) and share of right answers when reading dates, at the last update and for "
    "the mean of the weights over the last quarter of training.",
    rule="Smoothing, of ε = 0.1 against none: loss higher and share of right answers higher, each with its whole 95% "
    "interval: holds. Loss or share lower with its whole interval: does not hold here. Averaging, without smoothing: "
    "the interval of the change in right answers lies above zero: holds; below: does not hold here. If both parts "
    "agree, that is the verdict; if one of them holds, the claim holds only for that one. Otherwise: cannot tell.",
    measure=measure,
    verdict=verdict,
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
)
