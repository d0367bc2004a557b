"""Depth against width at equal parameters, and what happens to the representations from layer to layer.

Deep stacks want other learning rates than shallow ones, so each depth is trained at several and compared at its best.
Similarity of layers is measured by linear CKA (Kornblith et al., 2019), which is 1 for representations that agree up to
rotation and scale. A linear probe asks each layer's states for the current character and for the next one: what
was read fades, what will be said appears.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.intervals import Interval, interval
from clearhead.lab.rates import said_of_rates, sweep, unbracketed
from clearhead.lab.sizing import of_size
from clearhead.lab.text import Language, language
from clearhead.model import Transformer, count_parameters, trace

DEPTHS = (1, 2, 4, 8)
ARMS = {
    f"{depth} layer{'s' * (depth > 1)}": "as wide as the number of parameters allows, feed-forward four times that"
    for depth in DEPTHS
}


def states(model: Transformer, tokens: Tensor) -> list[Tensor]:
    """The embedding and the state after each layer, (B, S, D) each."""
    with torch.no_grad(), trace(model) as seen:
        model(tokens)
    after_layers = [tensor for path, tensor in seen.named("residual").items() if "feed_forward" in path]
    return [seen["embedding.embedding"], *after_layers]


def similarity(one: Tensor, two: Tensor) -> float:
    """Linear CKA of two sets of vectors (N, D)."""
    one, two = one - one.mean(0), two - two.mean(0)
    return float((one.T @ two).square().sum() / ((one.T @ one).norm() * (two.T @ two).norm()))


def probe(vectors: Tensor, labels: Tensor, classes: int) -> float:
    """Share of labels that ridge regression, fitted to the first half, finds in the second."""
    half = len(vectors) // 2
    scaled = F.layer_norm(vectors, vectors.shape[-1:]).double()
    x = torch.cat((scaled, torch.ones(len(scaled), 1, dtype=torch.float64)), 1)
    y = F.one_hot(labels, classes).double()
    left = x[:half].T @ x[:half] + 0.1 * half**0.5 * torch.eye(x.size(1), dtype=torch.float64)
    weights = torch.linalg.solve(left, x[:half].T @ y[:half])
    return float(((x[half:] @ weights).argmax(-1) == labels[half:]).double().mean())


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    data: Language = language(sizes["characters"], sizes["context"])
    vocabulary, depth = data.tokenizer.size, int(arm.split()[0])
    config = of_size(sizes["parameters"], vocabulary, decoder_layers=depth)
    swept = sweep(config, data, seed, sizes)
    batch = data.validation.collate(range(1, 2 * sizes["windows"], 2))  # those that the rate was not chosen on
    tokens = batch.inputs["tokens"]
    layers = [state.flatten(0, 1) for state in states(swept.trained.model.eval(), tokens)]
    return {
        **swept.numbers(),
        "parameters": float(count_parameters(config)),
        "d_model": float(config.d_model),
        "to_previous": [similarity(one, two) for one, two in pairwise(layers)],
        "to_first": [similarity(layers[0], layer) for layer in layers],
        "current": [probe(layer, tokens.flatten(), vocabulary) for layer in layers],
        "next": [probe(layer, batch.labels.flatten(), vocabulary) for layer in layers],
    }


def gains(results: Results) -> Verdict:
    found = {arm: results.difference("1 layer", arm, "loss") for arm in ARMS if arm != "1 layer"}
    shown = ", ".join(f"{arm} {gain}" for arm, gain in found.items())
    sentence = f"loss of one layer minus theirs, in nats, at equal parameters: {shown}. {said_of_rates(results)}"
    if open_ended := unbracketed(results, ARMS):
        beyond = f"the best rate of {', '.join(open_ended)} may lie beyond those tried"
        return Verdict("cannot tell at this size", f"{beyond}; {sentence}")
    good = [arm for arm, gain in found.items() if gain.low > 0]
    if len(good) == len(found):
        return Verdict("holds", sentence)
    if good:
        return Verdict("holds only if", f"depth is not overdone ({', '.join(good)} beat one layer): {sentence}")
    if any(gain.high < 0 for gain in found.values()):
        return Verdict("does not hold here", sentence)
    return Verdict("cannot tell at this size", sentence)


def richer(results: Results) -> Verdict:
    deepest = [*ARMS][-1]
    after, before = results.curve(deepest, "next"), results.curve(deepest, "current")
    rise = interval([found[-1] - found[0] for found in results.each(deepest, "next")])
    sentence = (
        f"in {deepest}, a linear probe finds the next character in {after[0].mean:.2f} of the embeddings and "
        f"{after[-1].mean:.2f} of the last states, and the current one in {before[0].mean:.2f} and "
        f"{before[-1].mean:.2f}: what was read fades, what will be said appears"
    )
    return Verdict("holds" if rise.low > 0 else "does not hold here", sentence)


def headline(results: Results) -> str:
    best = min(ARMS, key=lambda arm: results.mean(arm, "loss"))
    last = results.curve(best, "next")[-1].mean
    return (
        f"At {results.sizes['parameters']:,} parameters {best} are best; layer by layer the states leave the embedding "
        f"and come to hold the next character ({last:.2f} of them by a linear probe)."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(3)
    losses = {"validation loss": [results.interval(arm, "loss") for arm in ARMS]}
    title = f"{results.sizes['parameters']:,} parameters"
    lines(axes[0], DEPTHS, losses, "layers", "loss (nats per character)", title, "x")
    deepest = [*ARMS][-1]
    first = results.curves(ARMS, "to_first")
    numbers = list(range(DEPTHS[-1] + 1))
    lines(
        axes[1], numbers, first, "after layer", "similarity to the embedding (CKA)", "Layers move away from the input"
    )
    probes: dict[str, list[Interval]] = {
        "current character": results.curve(deepest, "current"),
        "next character": results.curve(deepest, "next"),
    }
    title = f"What the states hold, {deepest}"
    lines(axes[2], numbers, probes, "after layer", "share found by a linear probe", title, share=True)
    return drawn


EXPERIMENT = Experiment(
    number=9,
    name="depth",
    claim="Stacking layers increases the capacity of the representations.",
    parts=(
        Part(
            "Stacking layers makes a better model of the same size.",
            "A depth gains if the 95% interval of the one-layer loss minus its own lies above zero. All depths gain: "
            "holds. Some: holds only if depth is not overdone. None, and one that loses: does not hold here. "
            "Otherwise, or if the best rate of a depth lies at an end of those tried (more than 0.01 nats better than "
            "any inside): cannot tell.",
            gains,
        ),
        Part(
            "Deeper states hold more of what will be said.",
            "In the deepest model, the interval of the share of next characters that a linear probe finds in the last "
            "states, minus that in the embeddings, lies above zero: holds; otherwise it does not hold here.",
            richer,
        ),
    ),
    arms=ARMS,
    measured="Validation loss of a language model of characters at equal parameters, by depth, each at the best of "
    "several peak rates, chosen on other text; similarity (linear CKA) of each layer's states to the embedding; the "
    "share of current and next characters a linear probe finds in them.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={
        "seeds": 3,
        "parameters": 120_000,
        "characters": 300_000,
        "context": 64,
        "steps": 200,
        "windows": 64,
        "peaks": (1e-3, 3e-3, 9e-3),
    },
    full={
        "seeds": 4,
        "parameters": 250_000,
        "characters": 3_000_000,
        "context": 128,
        "steps": 2000,
        "windows": 96,
        "peaks": (1e-3, 2e-3, 4e-3, 8e-3),
    },
    minutes=(3.0, 60.0),
    columns={"loss": "loss (nats)", "parameters": "parameters", "d_model": "d_model"},
)
