"""Warm-up: is the Noam schedule load-bearing, or one more thing to tune?

The same peak rates with warm-ups of several lengths, and then a level rate, so that nothing differs but the start; and
Noam, which decays with 1/√n after its warm-up. "The loss goes flat" is made precise: flat means that the model never
learns to do better than always guessing from how often each token occurs.
"""

import math

import numpy as np
from matplotlib.figure import Figure

from clearhead.data.batch import Dataset
from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict
from clearhead.lab.training import brief, lists, small, train

WARM_UPS = ("none", "short", "long", "noam")
ARMS = {
    f"{placement}-norm, {warm}": {
        "none": "the peak rate from the first update",
        "short": "a warm-up of a twentieth of the updates, then level",
        "long": "a warm-up of a quarter of the updates, then level",
        "noam": "a warm-up of a quarter of the updates, then decay with 1/√n",
    }[warm]
    + f"; {placement}-norm"
    for placement in ("post", "pre")
    for warm in WARM_UPS
}


def guessing(data: Dataset) -> float:
    """The loss of always guessing each token by its frequency, which is what a flat loss settles at."""
    labels = np.concatenate([data.collate([index]).labels.numpy().ravel() for index in range(200)])
    shares = np.bincount(labels) / len(labels)
    return -float(sum(share * math.log(share) for share in shares if share))


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    placement, warm = arm.split("-norm, ")
    steps = sizes["steps"]
    warmup = {"none": 0, "short": steps // 20, "long": steps // 4, "noam": steps // 4}[warm]
    data = lists("reverse", longest=10)
    config = small(
        data.tokenizer.size,
        d_model=48,
        d_ff=96,
        encoder_layers=sizes["layers"],
        decoder_layers=sizes["layers"],
        norm={"placement": placement},
    )
    chance, losses, flat = guessing(data.validation), [], []
    for peak in sizes["peaks"]:
        settings = brief(
            steps, seed, peak, warmup, schedule="noam" if warm == "noam" else "constant", clip=0.0, max_tokens=256
        )
        trained = train(config, data.train, settings)
        losses.append(min(trained.scores(data.validation)["loss"], 10.0))
        flat.append(float(losses[-1] > 0.9 * chance))
    return {"loss": losses, "flat": flat, "best": min(losses), "flat_peaks": sum(flat), "chance": chance}


def verdict(results: Results) -> Verdict:
    peaks = results.sizes["peaks"]

    def rescued(placement: str) -> list[float]:
        """Peaks at which all seeds go flat without warm-up, and none does with the long one."""
        cold, warm = (results.curve(f"{placement}-norm, {start}", "flat") for start in ("none", "long"))
        return [peak for peak, one, two in zip(peaks, cold, warm, strict=True) if one.mean == 1 and two.mean == 0]

    def flat_anywhere(arm: str) -> bool:
        return any(point.mean > 0 for point in results.curve(arm, "flat"))

    saved = {placement: rescued(placement) for placement in ("post", "pre")}
    cheap = [p for p in ("post", "pre") if not results.curve(f"{p}-norm, none", "flat")[0].mean]
    tuned = results.difference("post-norm, short", "post-norm, long", "best")
    best = ", ".join(f"{arm} {results.mean(arm, 'best'):.2f}" for arm in ARMS)
    sentence = f"loss at each one's best peak rate: {best} nats; short minus long warm-up, post-norm: {tuned}"
    where = "; ".join(f"{p}-norm at peaks {', '.join(f'{x:g}' for x in saved[p])}" for p in saved if saved[p])
    if not any(saved.values()):
        word = flat_anywhere("post-norm, none")
        return Verdict(
            "cannot tell at this size" if word else "does not hold here", f"no peak is rescued by it: {sentence}"
        )
    if saved["post"] and saved["pre"] and not cheap:
        return Verdict("holds", f"flat without and not with it: {where}; {sentence}")
    return Verdict("holds only if", f"the peak rate is high ({where}); {sentence}")


def figure(results: Results) -> Figure:
    drawn, axes = panels(2, width=5.4, height=3.8)
    for panel, placement in zip(axes, ("post", "pre"), strict=True):
        series = {warm: results.curve(f"{placement}-norm, {warm}", "loss") for warm in WARM_UPS}
        chance = results.mean(f"{placement}-norm, none", "chance")
        panel.axhline(chance, color="0.5", linewidth=1)
        panel.annotate(
            "guessing by frequency: flat", (0.02, chance), xycoords=("axes fraction", "data"), fontsize=8, va="bottom"
        )
        label, title = "validation loss (nats per token)", f"{placement}-norm; lines are warm-ups"
        lines(panel, results.sizes["peaks"], series, "peak learning rate", label, title, "x", least=0)
    return drawn


EXPERIMENT = Experiment(
    number=4,
    name="warm-up",
    claim="Warm-up is not something one tunes but load-bearing: train without it and the loss goes flat.",
    arms=ARMS,
    measured="Validation loss of an encoder-decoder that learns to reverse, at several peak rates; flat if it is above "
    "90% of the loss of guessing each token by its frequency. No clipping.",
    rule="A peak rate is rescued if every seed is flat there without warm-up and none with the long one. Rescued peaks "
    "for post-norm and pre-norm, and flat without warm-up even at the lowest rate: holds. Some rescued peak: holds "
    "only if the peak is high. No rescued peak: does not hold here, or cannot be told if some seeds were flat.",
    measure=measure,
    verdict=verdict,
    figure=figure,
    quick={"seeds": 3, "steps": 120, "layers": 3, "peaks": (1e-3, 4e-3, 1.6e-2)},
    full={"seeds": 3, "steps": 500, "layers": 4, "peaks": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)},
    columns={
        "best": "loss at the best peak (nats)",
        "flat_peaks": "peaks that go flat",
        "chance": "loss of guessing (nats)",
    },
)
