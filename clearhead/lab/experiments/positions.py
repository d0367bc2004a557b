"""Positions past the length of training: what sinusoids, a learned table, RoPE, ALiBi and nothing at all do there.

Text: a language model trained on windows of L characters reads windows of up to 8 L; what is scored is the last part of
each window, where all the context is at hand. Task: copying lists of up to L numbers, then of exactly k L. The learned
table is given rows for the longest input, but rows past L never meet a gradient. And without any training: how much
gradient passes between a query and the keys at each distance from it, into the keys and into the query.
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


def gradients(config: Any, seed: int, length: int) -> tuple[list[float], list[float]]:
    """In an untrained model, between the first layer's last query and the keys of each octave of distances from it: the
    gradient into a key, and the gradient into the query that these keys together send it, for each key. Both as
    shares of the largest."""
    kept: list[tuple[Tensor, Tensor, Tensor]] = []

    def watching(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        may_attend: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        dropout_rate: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        scores = torch.zeros(q.shape[:-1] + k.shape[-2:-1], requires_grad=True)  # added to them: its gradient is theirs
        kept.append((q.detach(), k.detach(), scores))
        return attention(q, k, v, may_attend, scores if bias is None else bias + scores, causal)

    torch.manual_seed(seed_of(seed, "weights"))
    model = build(config, watching)
    hidden: Any = model.hidden
    hidden(torch.randint(0, config.vocab_size, (16, length)))[:, -1].square().sum().backward()
    q, k, scores = kept[0]
    assert scores.grad is not None
    passed = scores.grad[:, :, -1].flip(-1)[..., None] / math.sqrt(q.size(-1))  # (B, H, T, 1), by distance
    into_keys, into_query = passed * q[:, :, -1:], passed * k.flip(-2)  # of a score q·k/√d, by q and by k
    distances = [2**power for power in range(int(math.log2(length)))]
    # a mean over each octave of distances, because single keys differ by what they hold
    keys = torch.stack([into_keys[:, :, start : 2 * start].norm(dim=-1).mean() for start in distances])
    query = torch.stack([into_query[:, :, start : 2 * start].mean(2).norm(dim=-1).mean() for start in distances])
    return (keys / keys.max()).tolist(), (query / query.max()).tolist()


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
    keys, query = gradients(config(data.tokenizer.size, kind="decoder"), seed, 4 * context)
    return {
        "bits": bits,
        "copied": copied,
        "keys": keys,
        "query": query,
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
    drawn, axes = panels(4)
    title = f"Text: trained on {results.sizes['context']} characters"
    bits = results.curves(ARMS, "bits")
    lines(axes[0], FACTORS, bits, "length / length in training", "loss (bits per character)", title, "x")
    copied = results.curves(ARMS, "copied")
    title = f"Copying: trained on up to {results.sizes['list']} numbers"
    lines(axes[1], FACTORS, copied, "length / length in training", "share of right tokens", title, "x", share=True)
    for panel, name, title in (
        (axes[2], "keys", "Untrained: gradient into each key"),
        (axes[3], "query", "Untrained: gradient into the query, per key"),
    ):
        shares = results.curves(ARMS, name)
        distances = [2**power for power in range(len(shares["rope"]))]
        lines(panel, distances, shares, "distance between them (tokens)", "gradient (share of largest)", title, "xy")
    return drawn


EXPERIMENT = Experiment(
    number=7,
    name="positions",
    claim="Sinusoidal encodings let a model generalise to lengths beyond those seen in training.",
    arms=ARMS,
    measured="Bits per character at the end of windows of 1, 2, 4 and 8 times the training length; the share of right "
    "tokens when copying lists 1, 2, 4 and 8 times as long; the gradient that passes between the last query and keys "
    "at each distance, untrained.",
    rule="An arm keeps if the 95% interval of its bits per character at 8 times the length, minus those at the trained "
    "length, lies below 0.1, and breaks if it lies above 0.1. The verdict is about the sinusoids: keeps: holds; "
    "breaks: does not hold here; otherwise it cannot be told.",
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
        "steps": 1500,
        "windows": 128,
        "list": 16,
        "copy_steps": 1000,
    },
    columns={
        "bits_same": "bits per character at the trained length",
        "bits_longest": "at 8 times the length",
        "copied_same": "share copied at the trained length",
        "copied_double": "at twice the length",
    },
)
