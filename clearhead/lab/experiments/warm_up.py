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
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
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


def rescued(placement: str, results: Results) -> list[float]:
    """Peaks at which all seeds go flat without warm-up, and none does with the long one."""
    cold, warm = (results.curve(f"{placement}-norm, {start}", "flat") for start in ("none", "long"))
    triples = zip(results.sizes["peaks"], cold, warm, strict=True)
    return [peak for peak, one, two in triples if one.mean == 1 and two.mean == 0]


def widest(placement: str, warm: str, results: Results) -> str:
    """The highest peak at which no seed is flat, in words."""
    curve = results.curve(f"{placement}-norm, {warm}", "flat")
    good = [peak for peak, flat in zip(results.sizes["peaks"], curve, strict=True) if flat.mean == 0]
    return f"up to {max(good):g}" if good else "at no peak"


def bears(placement: str, results: Results) -> Verdict:
    """Does training go flat without warm-up where it does not with it?"""
    saved = rescued(placement, results)
    cold = results.curve(f"{placement}-norm, none", "flat")
    best = {warm: results.interval(f"{placement}-norm, {warm}", "best") for warm in ("none", "long")}
    sentence = (
        f"{placement}-norm learns {widest(placement, 'none', results)} without warm-up and "
        f"{widest(placement, 'long', results)} with a long one; at each one's best peak the loss is {best['none']} and "
        f"{best['long']} nats"
    )
    if saved and cold[0].mean == 1:
        return Verdict("holds", sentence)
    if saved:
        return Verdict("holds only if", f"the peak rate is high ({', '.join(f'{x:g}' for x in saved)}): {sentence}")
    if any(0 < point.mean < 1 for point in cold):
        return Verdict("cannot tell at this size", sentence)
    return Verdict("does not hold here", sentence)


def untuned(results: Results) -> Verdict:
    gap = results.difference("post-norm, short", "post-norm, long", "best")
    reach = {warm: widest("post", warm, results) for warm in ("short", "long")}
    sentence = (
        f"post-norm, short minus long warm-up at the best peak of each: {gap} nats; it learns {reach['short']} with "
        f"the short one and {reach['long']} with the long one"
    )
    if gap.low > 0 or gap.high < 0:
        return Verdict("does not hold here", sentence)
    return Verdict("holds" if gap.half < 0.1 else "cannot tell at this size", sentence)


def headline(results: Results) -> str:
    return (
        f"A warm-up widens the range of peak rates that train at all: post-norm {widest('post', 'none', results)} "
        f"without it, {widest('post', 'long', results)} with a long one; pre-norm {widest('pre', 'none', results)} and "
        f"{widest('pre', 'long', results)}."
    )


def figure(results: Results) -> Figure:
    """Loss by peak rate, on axes of logarithms: rates double, and losses between 0.1 and guessing are what matters."""
    drawn, axes = panels(2, width=5.6, height=4.2)
    peaks = results.sizes["peaks"]
    for panel, placement in zip(axes, ("post", "pre"), strict=True):
        names = {"none": "no warm-up", "short": "short", "long": "long", "noam": "noam"}
        series = {name: results.curve(f"{placement}-norm, {warm}", "loss") for warm, name in names.items()}
        chance = results.mean(f"{placement}-norm, none", "chance")
        label, title = "validation loss (nats per token)", f"{placement}-norm"
        lines(panel, [1000 * peak for peak in peaks], series, "peak learning rate (thousandths)", label, title, "xy")
        panel.axhline(chance, color="0.5", linewidth=1)
        where = ("axes fraction", "data")
        panel.annotate("guessing: flat", (0.02, chance), xycoords=where, fontsize=8, va="bottom")
    return drawn


EXPERIMENT = Experiment(
    number=4,
    name="warm-up",
    claim="Warm-up is not something one tunes but load-bearing: train without it and the loss goes flat.",
    parts=(
        Part(
            "Post-norm: without warm-up the loss goes flat.",
            "A peak rate is rescued if every seed is flat there without warm-up and none with the long one. Rescued "
            "peaks, and flat without warm-up even at the lowest rate: holds. Some rescued peak: holds only if the peak "
            "is high. None: does not hold here, or cannot be told if some seeds were flat and others not.",
            lambda results: bears("post", results),
        ),
        Part(
            "Pre-norm: without warm-up the loss goes flat.",
            "The same rule.",
            lambda results: bears("pre", results),
        ),
        Part(
            "Warm-up is nothing one tunes.",
            "The 95% interval of the loss with a short minus with a long warm-up, post-norm, at the best peak of each: "
            "if it excludes zero, it does not hold here; if it is narrower than 0.1 nats either way, it holds; "
            "otherwise it cannot be told.",
            untuned,
        ),
    ),
    arms=ARMS,
    measured="Validation loss of an encoder-decoder that learns to reverse, at several peak rates; flat if it is above "
    "90% of the loss of guessing each token by its frequency. No clipping.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "steps": 120, "layers": 3, "peaks": (1e-3, 4e-3, 1.6e-2)},
    full={"seeds": 3, "steps": 500, "layers": 4, "peaks": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)},
    columns={
        "best": "loss at the best peak (nats)",
        "flat_peaks": "peaks that go flat",
        "chance": "loss of guessing (nats)",
    },
)
