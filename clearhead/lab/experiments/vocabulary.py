"""Vocabulary: where "just use a bigger vocabulary" stops working.

A larger vocabulary packs more bytes into a token, so a window sees more text and a byte costs less time. Its price is a
row for each token: with the total fixed, rows are paid for by width, and with a fixed text, rows of rare tokens are
hardly ever trained. Losses are given per byte, which is the only fair unit between vocabularies.
"""

import math

import numpy as np
from matplotlib.figure import Figure

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.intervals import Interval
from clearhead.lab.sizing import of_size
from clearhead.lab.text import language
from clearhead.lab.training import brief, small, train
from clearhead.model import count_parameters

ARMS = {
    "same total": "the number of all parameters is fixed: a larger vocabulary makes a narrower model",
    "same layers": "the layers are fixed: a larger vocabulary adds parameters",
}


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    bits, share, rare, packed, parameters = [], [], [], [], []
    for vocabulary in sizes["vocabularies"]:
        data = language(sizes["characters"], sizes["context"], vocabulary)
        if arm == "same total":
            config = of_size(sizes["parameters"], vocabulary, step=4, heads=2)
        else:
            config = small(vocabulary, kind="decoder", heads=2)
        settings = brief(sizes["steps"], seed, peak=2e-3, max_tokens=8 * sizes["context"])
        loss = train(config, data.train, settings).scores(data.validation)["loss"]
        counts = np.bincount(data.train.ids(), minlength=vocabulary)
        bits.append(loss / data.bytes_per_token / math.log(2))
        parameters.append(float(count_parameters(config)))
        share.append(vocabulary * config.d_model / parameters[-1])
        rare.append(float((counts < 10).mean()))
        packed.append(data.bytes_per_token)
    return {
        "bits": bits,
        "embedding": share,
        "rare": rare,
        "bytes_per_token": packed,
        "parameters": parameters,
        "smallest": bits[0],
        "largest": bits[-1],
        "lowest": min(bits),
        "best": float(sizes["vocabularies"][bits.index(min(bits))]),
    }


def stops(arm: str, results: Results) -> Verdict:
    """Is there a vocabulary beyond which it gets worse?"""
    sizes = list(results.sizes["vocabularies"])
    curve = results.curve(arm, "bits")
    best = min(range(len(sizes)), key=lambda place: curve[place].mean)
    from_best = [bits[-1] - bits[best] for bits in results.each(arm, "bits")]
    shown = ", ".join(f"{size:,} {point}" for size, point in zip(sizes, curve, strict=True))
    rare = results.curve(arm, "rare")[-1].mean
    share = results.curve(arm, "embedding")[-1].mean
    sentence = (
        f"bits per byte {shown}; at {sizes[-1]:,} tokens {share:.0%} of the parameters are embeddings, and {rare:.0%} "
        "of the tokens occur fewer than ten times in training"
    )
    if best == len(sizes) - 1:
        return Verdict("does not hold here", f"the largest vocabulary tried is still the best: {sentence}")
    if min(from_best) > 0:
        return Verdict("holds", f"it stops at {sizes[best]:,}: {sentence}")
    return Verdict("cannot tell at this size", sentence)


def headline(results: Results) -> str:
    sizes = results.sizes["vocabularies"]
    best = {arm: sizes[min(range(len(sizes)), key=lambda p: results.curve(arm, "bits")[p].mean)] for arm in ARMS}
    return (
        f"With the total fixed, rows of the embedding are paid for by width and the best vocabulary is "
        f"{best['same total']:,}; with the layers fixed and parameters added, it is "
        f"{best['same layers']:,}, of those tried."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(3)
    sizes = results.sizes["vocabularies"]
    bits = results.curves(ARMS, "bits")
    lines(axes[0], sizes, bits, "vocabulary (tokens)", "loss (bits per byte)", "Loss", "x")
    shares: dict[str, list[Interval]] = {
        "parameters in the embedding": results.curve("same total", "embedding"),
        "tokens seen < 10 times": results.curve("same total", "rare"),
    }
    lines(axes[1], sizes, shares, "vocabulary (tokens)", "share", "What it costs, at the same total", "x", share=True)
    packed = {"bytes per token": results.curve("same total", "bytes_per_token")}
    lines(axes[2], sizes, packed, "vocabulary (tokens)", "bytes per token", "What it brings", "x")
    return drawn


EXPERIMENT = Experiment(
    number=11,
    name="vocabulary",
    claim="“Just use a bigger vocabulary” stops working.",
    parts=(
        Part(
            "It stops when the number of all parameters is given.",
            "At equal total parameters: the largest vocabulary has the lowest bits per byte: does not hold here. "
            "Another is best, and every seed is worse at the largest than there: holds. Otherwise: cannot tell.",
            lambda results: stops("same total", results),
        ),
        Part(
            "It stops even if a larger vocabulary may add parameters.",
            "The same rule, with the layers fixed.",
            lambda results: stops("same layers", results),
        ),
    ),
    arms=ARMS,
    measured="Bits per byte of a language model of Python's standard library with the same number of updates and "
    "tokens, by vocabulary; bytes per token; the share of parameters in the embedding; tokens seen fewer than ten "
    "times.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={
        "seeds": 2,
        "vocabularies": (512, 2048, 8192),
        "characters": 500_000,
        "parameters": 250_000,
        "context": 64,
        "steps": 150,
    },
    full={
        "seeds": 3,
        "vocabularies": (512, 1024, 2048, 4096, 8192, 16_384, 32_000),
        "characters": 4_000_000,
        "parameters": 1_060_000,
        "context": 64,
        "steps": 500,
    },
    columns={
        "smallest": "bits per byte, smallest vocabulary",
        "lowest": "lowest bits per byte",
        "best": "at a vocabulary of",
        "largest": "bits per byte, largest vocabulary",
    },
)
