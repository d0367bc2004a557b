"""The causal mask, left out or put in the wrong place: what the loss shows, and what it hides.

A decoder that can see the next token need not predict it. Three ways to get there: no mask; weights zeroed after the
softmax, so that rows no longer sum to one and the future still sits in the denominator; scores multiplied by a lower
triangle of ones and zeros, which sets them to 0, and exp(0) = 1 is no mask at all. The loss in training is computed as
each model sees the text; what counts is the loss when there is no future to look at, as in generation.
"""

import math
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.lab.drawing import dots, lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.text import Language, language
from clearhead.lab.training import brief, small, train
from clearhead.model.attention import attention, softmax_or_zeros
from clearhead.model.masks import causal_mask

ARMS = {
    "right": "scores of the future are −∞ before the softmax",
    "no mask": "every position sees all of the text",
    "after the softmax": "weights of the future are multiplied by 0 after the softmax",
    "times a triangle": "scores are multiplied by a lower triangle of ones before the softmax",
}
WRONG = [arm for arm in ARMS if arm != "right"]


def without_mask(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return attention(q, k, v)


def masked_after(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    _, weights = attention(q, k, v)
    weights = weights * causal_mask(q.size(-2), k.size(-2))
    return weights @ v, weights


def times_triangle(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    weights = softmax_or_zeros(scores * causal_mask(q.size(-2), k.size(-2)))
    return weights @ v, weights


ATTEND: dict[str, Any] = {
    "right": attention,
    "no mask": without_mask,
    "after the softmax": masked_after,
    "times a triangle": times_triangle,
}


@torch.no_grad()
def leak(model: Any, tokens: Tensor) -> float:
    """How much the logits of the first half move (root mean square) when every token of the second half changes."""
    half = tokens.size(1) // 2
    other = tokens.clone()
    other[:, half:] = (other[:, half:] + 1) % model.config.vocab_size
    return float((model(tokens) - model(other))[:, :half].square().mean().sqrt())


@torch.no_grad()
def without_future(model: Any, tokens: Tensor, labels: Tensor, places: list[int]) -> tuple[float, float]:
    """Loss and accuracy of the next token where the text ends, as it does in generation."""
    losses, right = [], []
    for place in places:
        logits = model(tokens[:, : place + 1])[:, -1]
        losses.append(torch.nn.functional.cross_entropy(logits, labels[:, place]))
        right.append((logits.argmax(-1) == labels[:, place]).float().mean())
    return float(torch.stack(losses).mean()), float(torch.stack(right).mean())


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    context = sizes["context"]
    data: Language = language(sizes["characters"], context)
    config = small(data.tokenizer.size, kind="decoder", positions={"kind": "rope"})
    settings = brief(sizes["steps"], seed, peak=3e-3, max_tokens=8 * context)
    trained = train(config, data.train, settings, attend=ATTEND[arm])
    model = trained.model.eval()
    windows = list(range(sizes["windows"]))
    batch = data.validation.collate(windows)
    tokens, labels = batch.inputs["tokens"], batch.labels
    with torch.no_grad():
        logits = model(tokens)
    alone, accuracy = without_future(model, tokens, labels, list(range(7, context, context // 8)))
    return {
        "seen": float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())),
        "seen_accuracy": float((logits.argmax(-1) == labels).float().mean()),
        "alone": alone,
        "alone_accuracy": accuracy,
        "leak": leak(model, tokens),
        "row_sum": row_sum(arm, seed, context),
        "norm": sum(trained.norms) / len(trained.norms),
        "course": trained.smoothed(sizes["points"]),
    }


def row_sum(arm: str, seed: int, length: int) -> float:
    """What the weights of a query sum to, on average, for random queries and keys."""
    torch.manual_seed(seed)
    q, k = torch.randn(4, 4, length, 16), torch.randn(4, 4, length, 16)
    _, weights = ATTEND[arm](q, k, k, None, None, True)
    return float(weights.sum(-1).mean())


def told(results: Results, arm: str) -> str:
    return (
        f"{arm} {results.mean(arm, 'seen'):.2f} nats as trained and {results.mean(arm, 'alone'):.2f} without a future"
    )


def collapses(results: Results) -> Verdict:
    gap = results.difference("no mask", "right", "seen")
    low = results.mean("no mask", "seen") < 0.1 * results.mean("right", "seen")
    sentence = f"{told(results, 'no mask')}; {told(results, 'right')}"
    return Verdict("holds" if gap.high < 0 and low else "does not hold here", sentence)


def fails(results: Results) -> Verdict:
    worse = results.difference("no mask", "right", "alone")
    accuracy = [f"{arm} {results.mean(arm, 'alone_accuracy'):.2f}" for arm in ("no mask", "right")]
    sentence = (
        f"where the text ends, as it does in generation, the loss is {worse} nats above the right model's, and the "
        f"next character is right in {', '.join(accuracy)} of the cases"
    )
    return Verdict("holds" if worse.low > 0 else "cannot tell at this size", sentence)


def silently(arm: str, results: Results) -> Verdict:
    worse = results.difference(arm, "right", "alone")
    hidden = results.mean(arm, "seen") < results.mean("right", "seen") + 0.05
    sentence = f"{told(results, arm)}; {told(results, 'right')}"
    if worse.low <= 0:
        return Verdict("cannot tell at this size", sentence)
    return Verdict("holds" if hidden else "does not hold here", sentence)


def headline(results: Results) -> str:
    return (
        f"The lower the training loss, the worse the model: without a mask it is {results.mean('no mask', 'seen'):.2f} "
        f"nats as trained and {results.mean('no mask', 'alone'):.2f} where there is no future to look at; the right "
        f"model has {results.mean('right', 'seen'):.2f} and {results.mean('right', 'alone'):.2f}."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(3)
    points = results.sizes["points"]
    steps = [results.sizes["steps"] / points * (number + 1) for number in range(points)]
    courses = results.curves(ARMS, "course")
    lines(axes[0], steps, courses, "update", "training loss (nats per character)", "What training shows", least=0)
    alone = results.intervals(ARMS, "alone")
    dots(axes[1], alone, "validation loss (nats per character)", "What generation meets: no future to see")
    leaks = results.intervals(WRONG, "leak")
    dots(axes[2], leaks, "change of earlier logits (root mean square)", "Leak: later text is changed", order=[*ARMS])
    return drawn


EXPERIMENT = Experiment(
    number=2,
    name="causal-mask",
    claim="Without the causal mask the loss collapses and generation fails; masking after the softmax, or zeroing the "
    "scores, breaks the model silently.",
    parts=(
        Part(
            "Without the causal mask the loss collapses.",
            "As trained, it lies below a tenth of the right model's: holds; otherwise it does not hold here.",
            collapses,
        ),
        Part(
            "Without it generation fails.",
            "The 95% interval of its loss without a future minus the right model's lies above zero: holds; otherwise "
            "it cannot be told.",
            fails,
        ),
        Part(
            "Masking after the softmax breaks the model silently.",
            "The interval of its loss without a future minus the right model's lies above zero, and as trained it is "
            "less than 0.05 nats above: holds. Harm that shows: does not hold here. No harm: cannot tell.",
            lambda results: silently("after the softmax", results),
        ),
        Part(
            "Multiplying the scores by a triangle breaks the model silently.",
            "The same rule.",
            lambda results: silently("times a triangle", results),
        ),
    ),
    arms=ARMS,
    measured="A small language model of characters: its loss as trained, its loss on text that ends where it must "
    "predict, how far the future moves earlier logits, the sum of a query's weights, and gradient norms.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "steps": 300, "context": 64, "characters": 200_000, "windows": 64, "points": 10},
    full={"seeds": 5, "steps": 1000, "context": 128, "characters": 2_000_000, "windows": 256, "points": 25},
    columns={
        "seen": "loss as trained (nats)",
        "alone": "loss without a future (nats)",
        "seen_accuracy": "accuracy as trained",
        "alone_accuracy": "accuracy without a future",
        "leak": "leak (logits, RMS)",
        "row_sum": "sum of a query's weights",
        "norm": "gradient norm, mean over training",
    },
)
