"""Positions past the length of training: what sinusoids, a learned table, RoPE, ALiBi and nothing at all do there.

Text: a language model trained on windows of L characters reads windows of up to 8 L; what is scored is the last part of
each window, where all the context is at hand. Task: copying lists of up to L numbers, then of exactly k L. The learned
table is given rows for the longest input, but rows past L never meet a gradient. And without any training: how much
gradient the keys at each distance receive from one query.
"""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.data.windows import NextTokens
from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict
from clearhead.lab.intervals import Interval, interval
from clearhead.lab.text import language
from clearhead.lab.training import brief, lists, small, train
from clearhead.model import build
from clearhead.model.attention import attention
from clearhead.training.loop import seed_of

ARMS = {
    "sinusoidal": "sines and cosines added to the embedding (section 3.5)",
    "learned": "a trained row for each position; rows past the training length stay as initialised",
    "rope": "queries and keys rotated by their position",
    "alibi": "−m·distance added to the scores",
    "none": "no positions but what the causal mask gives away",
}
FACTORS = (1, 2, 4, 8)


def choice(kind: str, longest: int) -> dict[str, Any]:
    return {"kind": kind, "max_length": longest} if kind == "learned" else {"kind": kind}


@torch.no_grad()
def text_bits(model: Any, text: NextTokens, length: int, context: int, windows: int) -> float:
    """Bits per character over the last half context of windows of this length; all lengths end at the same places."""
    ids = torch.from_numpy(text.stream.ids.astype("int64"))
    labels = torch.from_numpy(text.labels.astype("int64"))
    scored = context // 2
    ends = torch.linspace(FACTORS[-1] * context, len(ids) - 1, windows).long()
    rows = ends[:, None] + torch.arange(1 - length, 1)
    logits = torch.cat([model(ids[part])[:, -scored:] for part in rows.split(8)])
    loss = F.cross_entropy(logits.flatten(0, 1), labels[rows[:, -scored:]].flatten())
    return float(loss) / math.log(2)


def copy_accuracy(config: Any, seed: int, sizes: Sizes) -> list[float]:
    """Train to copy lists of up to L numbers; the share of right tokens on lists of exactly L, 2 L, …"""
    length = sizes["list"]
    data = lists("copy", longest=length)
    settings = brief(sizes["copy_steps"], seed, peak=2e-3)
    trained = train(config(data.tokenizer.size), data.train, settings)
    tests = [lists("copy", examples=100, longest=factor * length, shortest=factor * length).test for factor in FACTORS]
    return [trained.scores(test, 8192)["accuracy"] for test in tests if test is not None]


def key_gradients(config: Any, seed: int, length: int) -> list[float]:
    """In an untrained model: the gradient that the last query sends to the first layer's keys, by distance from it, as
    a share of the largest."""
    kept: list[Tensor] = []

    def watching(*inputs: Any, **named: Any) -> tuple[Tensor, Tensor]:
        keys: Tensor = inputs[1]
        keys.retain_grad()
        kept.append(keys)
        return attention(*inputs, **named)

    torch.manual_seed(seed_of(seed, "weights"))
    model = build(config, watching)
    hidden: Any = model.hidden
    hidden(torch.randint(0, config.vocab_size, (16, length)))[:, -1].square().sum().backward()
    assert kept[0].grad is not None
    norms = kept[0].grad.norm(dim=-1).mean((0, 1)).flip(0)  # by distance from the last
    distances = [2**power for power in range(int(math.log2(length)))]
    # a mean over each octave of distances, because single keys differ by what they hold
    octaves = torch.stack([norms[start : 2 * start].mean() for start in distances])
    return (octaves / octaves.max()).tolist()


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    context = sizes["context"]
    longest = 8 * max(context, sizes["list"] + 2)
    data = language(sizes["characters"], context)
    config = partial(small, positions=choice(arm, longest))
    settings = brief(sizes["steps"], seed, peak=2e-3, max_tokens=8 * context)
    trained = train(config(data.tokenizer.size, kind="decoder"), data.train, settings)
    model = trained.model.eval()
    bits = [text_bits(model, data.validation, context * k, context, sizes["windows"]) for k in FACTORS]
    copied = copy_accuracy(config, seed, sizes)
    return {
        "bits": bits,
        "copied": copied,
        "keys": key_gradients(config(data.tokenizer.size, kind="decoder"), seed, 4 * context),
        "bits_same": bits[0],
        "bits_longest": bits[-1],
        "copied_same": copied[0],
        "copied_double": copied[1],
    }


def verdict(results: Results) -> Verdict:
    lost = {arm: worse(results, arm) for arm in ARMS}
    keeps = [arm for arm in ARMS if lost[arm].high < 0.1]
    breaks = [arm for arm in ARMS if lost[arm].low > 0.1]
    shown = ", ".join(f"{arm} {lost[arm]}" for arm in ARMS)
    copied = ", ".join(f"{arm} {results.mean(arm, 'copied_double'):.2f}" for arm in ARMS)
    sentence = f"bits per character lost at 8 times the length: {shown}; share copied at twice the length: {copied}"
    if "sinusoidal" in keeps:
        return Verdict("holds", sentence)
    if "sinusoidal" in breaks:
        others = f" ({', '.join(keeps)} can)" if keeps else ""
        return Verdict("does not hold here", f"sinusoids cannot{others}: {sentence}")
    return Verdict("cannot tell at this size", sentence)


def worse(results: Results, arm: str) -> Interval:
    """Bits at the longest windows minus those at the trained length, seed by seed."""
    return interval([bits[-1] - bits[0] for bits in results.each(arm, "bits")])


def figure(results: Results) -> Figure:
    drawn, axes = panels(3)
    title = f"Text: trained on {results.sizes['context']} characters"
    bits = {arm: results.curve(arm, "bits") for arm in ARMS}
    lines(axes[0], FACTORS, bits, "length / length in training", "loss (bits per character)", title, "x")
    copied = {arm: results.curve(arm, "copied") for arm in ARMS}
    title = f"Copying: trained on up to {results.sizes['list']} numbers"
    lines(axes[1], FACTORS, copied, "length / length in training", "share of right tokens", title, "x")
    keys = {arm: results.curve(arm, "keys") for arm in ARMS}
    distances = [2**power for power in range(len(keys["rope"]))]
    title = "Untrained: gradient into the keys"
    lines(axes[2], distances, keys, "distance from the query (tokens)", "gradient (share of largest)", title, "x")
    return drawn


EXPERIMENT = Experiment(
    number=7,
    name="positions",
    claim="Sinusoidal encodings let a model generalise to lengths beyond those seen in training.",
    arms=ARMS,
    measured="Bits per character at the end of windows of 1, 2, 4 and 8 times the training length; the share of right "
    "tokens when copying lists 1, 2, 4 and 8 times as long; the gradient that reaches the keys by distance, untrained.",
    rule="An arm keeps if the 95% interval of its bits per character at 8 times the length, minus those at the trained "
    "length, lies below 0.1, and breaks if it lies above 0.1. The verdict is about the sinusoids: keeps: holds; "
    "breaks: "
    "does not hold here; otherwise it cannot be told.",
    measure=measure,
    verdict=verdict,
    figure=figure,
    quick={
        "seeds": 3,
        "context": 32,
        "characters": 200_000,
        "steps": 300,
        "windows": 64,
        "list": 8,
        "copy_steps": 200,
    },
    full={
        "seeds": 5,
        "context": 64,
        "characters": 2_000_000,
        "steps": 3000,
        "windows": 128,
        "list": 16,
        "copy_steps": 2000,
    },
    columns={
        "bits_same": "bits per character at the trained length",
        "bits_longest": "at 8 times the length",
        "copied_same": "share copied at the trained length",
        "copied_double": "at twice the length",
    },
)
