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
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
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
NAMES = {
    "sinusoidal": "Sinusoids",
    "learned": "Learned positions",
    "rope": "Rotary positions",
    "alibi": "ALiBi's biases",
    "none": "No positions at all",
}
FACTORS = (1, 2, 4, 8)


def choice(kind: str, longest: int) -> dict[str, Any]:
    return {"kind": kind, "max_length": longest} if kind == "learned" else {"kind": kind}


@torch.no_grad()
def text_bits(model: Any, text: NextTokens, length: int, context: int, windows: int) -> float:
    """Bits per character over the last half context of windows of this length; all lengths end at the same places."""
    ids = torch.from_numpy(text.ids().astype("int64"))
    labels = torch.from_numpy(text.labels().astype("int64"))
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


BREAKS = 0.1  # bits per character: more than this is lost
COPIES = 0.9  # share of right tokens: less than this is no copy


def extrapolates(kind: str, results: Results) -> Verdict:
    """Text and copying beyond the trained length, each by its own rule."""
    lost = worse(results, kind)
    copied = results.curve(kind, "copied")
    shown = ", ".join(f"{share.mean:.2f} at {factor}x" for share, factor in zip(copied, FACTORS, strict=True))
    sentence = f"text loses {lost} bits per character at 8 times the length; share of a list copied: {shown}"
    text, lists_too = lost.high < BREAKS, copied[1].mean > COPIES
    if text and lists_too:
        return Verdict("holds", sentence)
    if text:
        return Verdict("holds only if", f"it is text: {sentence}")
    if lists_too:
        return Verdict("holds only if", f"it is copying: {sentence}")
    if lost.low > BREAKS:
        return Verdict("does not hold here", sentence)
    return Verdict("cannot tell at this size", sentence)


def by_mask_alone(results: Results) -> Verdict:
    """A causal model without positions, at the length it was trained at."""
    gap = results.difference("none", "sinusoidal", "bits_same")
    sentence = (
        f"at the trained length it is {gap} bits per character above the one with sinusoids. What it has is how many "
        "tokens came before, by the mask; the encoder-decoder, whose encoder has no such mask, copies "
        f"{results.mean('none', 'copied_same'):.2f} of the tokens without positions and "
        f"{results.mean('sinusoidal', 'copied_same'):.2f} with them"
    )
    if gap.high < BREAKS:
        return Verdict("holds", sentence)
    return Verdict("does not hold here" if gap.low > BREAKS else "cannot tell at this size", sentence)


def seen_in_gradients(results: Results) -> Verdict:
    """Does ALiBi pass less gradient between distant tokens than RoPE?"""
    far = {kind: interval([found[-1] for found in results.each(kind, "keys")]) for kind in ("rope", "alibi")}
    distance = 2 ** (len(results.curve("rope", "keys")) - 1)
    sentence = (
        f"untrained, the gradient into keys {distance} and more tokens away is {far['rope']} of the largest with RoPE "
        f"and {far['alibi']} with ALiBi"
    )
    return Verdict("holds" if far["alibi"].high < far["rope"].low else "does not hold here", sentence)


def headline(results: Results) -> str:
    lost = {arm: worse(results, arm).mean for arm in ARMS}
    twice = {arm: results.mean(arm, "copied_double") for arm in ARMS}
    best, worst = min(lost, key=lambda arm: lost[arm]), max(lost, key=lambda arm: lost[arm])
    copier = max(twice, key=lambda arm: twice[arm])
    return (
        f"Beyond the trained length no kind is good at everything: on text {best} keeps ({lost[best]:+.2f} bits) and "
        f"{worst} breaks ({lost[worst]:+.2f}); of lists twice as long {copier} copies most ({twice[copier]:.2f}), and "
        f"ALiBi {twice['alibi']:.2f}."
    )


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
    claim="Sinusoidal encodings let a model generalise to lengths beyond those seen in training; each kind of "
    "positions breaks something at long context; a causal model can do without.",
    parts=(
        *(
            Part(
                f"{name} carry over to longer inputs.",
                "Text: the 95% interval of bits per character at 8 times the length, minus those at the trained "
                f"length, lies below {BREAKS}. Copying: more than {COPIES:.0%} of the tokens are right at twice the "
                "length. Both: holds; one: holds only for that; neither, and text breaks by its whole interval: does "
                "not hold here; otherwise it cannot be told."
                if kind == "sinusoidal"
                else "The same rule.",
                partial(extrapolates, kind),
            )
            for kind, name in NAMES.items()
        ),
        Part(
            "A causal language model needs no positions: its mask tells the order.",
            f"At the trained length, the interval of bits without positions minus those with sinusoids lies below "
            f"{BREAKS}: holds; above: does not hold here; otherwise it cannot be told.",
            by_mask_alone,
        ),
        Part(
            "Swapping RoPE for ALiBi shows in the gradients.",
            "Untrained, the interval of the gradient into the most distant keys, as a share of the largest, lies below "
            "RoPE's with ALiBi: holds; otherwise it does not hold here.",
            seen_in_gradients,
        ),
    ),
    arms=ARMS,
    measured="Bits per character at the end of windows of 1, 2, 4 and 8 times the training length; the share of right "
    "tokens when copying lists 1, 2, 4 and 8 times as long; the gradient that passes between the last query and keys "
    "at each distance, untrained.",
    measure=measure,
    headline=headline,
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
