"""Heads: do they attend to different things, and does the model need them all?

How different two heads are is the Jensen-Shannon divergence of where they look, in bits, averaged over queries, pairs
and layers: 0 if they look at the same places, 1 if never. The same number for the untrained model says how much of it
is only chance. Then each head in turn is silenced, and the loss says what it was worth. Narrow heads may want another
learning rate than wide ones, so each number of heads is trained at several and compared at the best of them.
"""

import statistics

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.intervals import interval
from clearhead.lab.rates import loss_on, said_of_rates, sweep, unbracketed
from clearhead.lab.text import language
from clearhead.lab.training import small
from clearhead.model import Transformer, build, trace
from clearhead.model.attention import MultiHeadAttention, merge_heads
from clearhead.training.loop import seed_of

COUNTS = (1, 2, 4, 8, 16)
ARMS = {f"{count} head{'s' * (count > 1)}": f"each of width {64 // count}" for count in COUNTS}


def entropy(weights: Tensor) -> Tensor:
    return -(weights * weights.clamp(min=1e-12).log2()).sum(-1)


def divergence(model: Transformer, tokens: Tensor) -> float:
    """Mean Jensen-Shannon divergence of pairs of heads, in bits; 0 where there is only one."""
    with torch.no_grad(), trace(model) as seen:
        model(tokens)
    found = []
    for weights in seen.named("weights").values():  # (B, H, S, T)
        heads = weights[:, :, 8:].transpose(0, 1)  # the first queries see too little to differ
        for one in range(len(heads)):
            for two in range(one):
                mixed = (heads[one] + heads[two]) / 2
                found.append((entropy(mixed) - (entropy(heads[one]) + entropy(heads[two])) / 2).mean())
    return float(torch.stack(found).mean()) if found else 0.0


def silenced(head: int) -> object:
    """`merge_heads` with one head's output set to zero."""

    def merge(x: Tensor) -> Tensor:
        keep = torch.ones(1, x.size(1), 1, 1)
        keep[:, head] = 0
        return merge_heads(x * keep)

    return merge


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    data = language(sizes["characters"], sizes["context"])
    count = int(arm.split()[0])
    config = small(data.tokenizer.size, kind="decoder", heads=count)
    tokens = data.validation.collate(range(8)).inputs["tokens"]
    torch.manual_seed(seed_of(seed, "weights"))
    untrained = divergence(build(config).eval(), tokens)
    swept = sweep(config, data, seed, sizes)
    model = swept.trained.model.eval()
    windows = range(1, 2 * sizes["windows"], 2)  # those that the rate was not chosen on
    costs = []
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            for head in range(count):
                module.merge_heads = silenced(head)  # type: ignore[assignment]
                costs.append(loss_on(model, data.validation, windows) - swept.loss)
            module.merge_heads = merge_heads
    return {
        **swept.numbers(),
        "untrained": untrained,
        "trained": divergence(model, tokens),
        "most": max(costs),
        "least": min(costs),
        "spare": sum(cost < 0.01 for cost in costs) / len(costs),
        "costs": sorted(costs, reverse=True),
    }


SEVERAL = [arm for arm in ARMS if arm != "1 head"]


def differ(results: Results) -> Verdict:
    shown = ", ".join(
        f"{arm} {results.mean(arm, 'untrained'):.2f} → {results.mean(arm, 'trained'):.2f}" for arm in SEVERAL
    )
    sentence = f"divergence of where heads look, untrained → trained, in bits: {shown}"
    more = [arm for arm in SEVERAL if rise(results, arm) > 0]
    if len(more) == len(SEVERAL):
        return Verdict("holds", sentence)
    if more:
        return Verdict("holds only if", f"there are {', '.join(more)}: {sentence}")
    return Verdict("does not hold here", sentence)


def better(results: Results) -> Verdict:
    best = min(ARMS, key=lambda arm: results.mean(arm, "loss"))
    gains = {arm: results.difference("1 head", arm, "loss") for arm in SEVERAL}
    shown = ", ".join(f"{arm} {gain}" for arm, gain in gains.items())
    sentence = f"loss of one head minus theirs, in nats: {shown}. {said_of_rates(results)}"
    if open_ended := unbracketed(results, ARMS):
        beyond = f"the best rate of {', '.join(open_ended)} may lie beyond those tried"
        return Verdict("cannot tell at this size", f"{beyond}; {sentence}")
    if best != "1 head" and gains[best].low > 0:
        return Verdict("holds", f"{best} are best: {sentence}")
    if any(gain.high < 0 for gain in gains.values()) and best == "1 head":
        return Verdict("does not hold here", f"one head is best: {sentence}")
    return Verdict("cannot tell at this size", sentence)


def needed(results: Results) -> Verdict:
    spare = {arm: results.mean(arm, "spare") for arm in SEVERAL}
    shown = ", ".join(
        f"{arm}: {share:.0%} worth less than 0.01 nats, the best {results.mean(arm, 'most'):.2f}"
        for arm, share in spare.items()
    )
    sentence = f"each head silenced in turn, {shown}"
    return Verdict("holds" if max(spare.values()) == 0 else "does not hold here", sentence)


def headline(results: Results) -> str:
    most = SEVERAL[-1]
    return (
        f"Trained heads look at different places, the more so the more there are; but of {most} "
        f"{results.mean(most, 'spare'):.0%} could go for less than 0.01 nats each, and the best number of heads for "
        f"the loss is {min(ARMS, key=lambda arm: results.mean(arm, 'loss')).split()[0]}. "
        f"{said_of_rates(results)}."
    )


def rise(results: Results, arm: str) -> float:
    """The low end of the interval of trained minus untrained divergence."""
    pairs = zip(results.each(arm, "trained"), results.each(arm, "untrained"), strict=True)
    return interval([after - before for after, before in pairs]).low


def figure(results: Results) -> Figure:
    drawn, axes = panels(3)
    losses = {"validation loss": [results.interval(arm, "loss") for arm in ARMS]}
    lines(axes[0], COUNTS, losses, "heads, width 64 in all", "loss (nats per character)", "Loss", "x")
    spread = {when: [results.interval(arm, when) for arm in SEVERAL] for when in ("trained", "untrained")}
    lines(axes[1], COUNTS[1:], spread, "heads", "divergence of pairs (bits)", "How differently heads look", "x")
    worth = {
        name: [interval([rank(costs) for costs in results.each(arm, "costs")]) for arm in ARMS]
        for name, rank in (("the best", max), ("the middle one", statistics.median), ("the worst", min))
    }
    label = "loss without it, minus loss (nats)"
    lines(axes[2], COUNTS, worth, "heads in each of two layers", label, "What a head is worth", "x")
    return drawn


EXPERIMENT = Experiment(
    number=10,
    name="heads",
    claim="Several heads attend to different relations, and the model is better for it.",
    parts=(
        Part(
            "Several heads attend to different relations.",
            "Heads differ more than by chance if the 95% interval of trained minus untrained divergence lies above "
            "zero. For every number of heads: holds; for some: holds only for those; for none: does not hold here.",
            differ,
        ),
        Part(
            "The model is better for it.",
            "The best loss is that of several heads, below that of one head with its whole interval: holds. One head "
            "is best and another number worse with its whole interval: does not hold here. Otherwise, or if the best "
            "rate of an arm lies at an end of those tried (more than 0.01 nats better than any inside): cannot tell.",
            better,
        ),
        Part(
            "It needs all of its heads.",
            "No head of any model costs less than 0.01 nats when it is silenced: holds; otherwise it does not.",
            needed,
        ),
    ),
    arms=ARMS,
    measured="Validation loss of a language model of characters by number of heads at equal width, each at the best of "
    "several peak rates, chosen on other text; the Jensen-Shannon "
    "divergence of heads, trained and untrained; the loss with each head silenced.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={
        "seeds": 3,
        "characters": 300_000,
        "context": 64,
        "steps": 200,
        "windows": 48,
        "peaks": (2e-3, 4e-3, 8e-3),
    },
    full={
        "seeds": 4,
        "characters": 3_000_000,
        "context": 128,
        "steps": 1500,
        "windows": 96,
        "peaks": (1e-3, 2e-3, 4e-3, 8e-3),
    },
    minutes=(2.5, 45.0),
    columns={
        "loss": "loss (nats)",
        "untrained": "divergence untrained (bits)",
        "trained": "divergence trained (bits)",
        "most": "worth of the best head (nats)",
        "least": "worth of the worst (nats)",
        "spare": "share worth less than 0.01 nats",
    },
)
