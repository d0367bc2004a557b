"""Weight tying (section 3.4; Press and Wolf, 2017): one matrix for the embedding and for the logits.

It saves vocabulary · width parameters, which is most of a small model with a large vocabulary. Whether it also improves
the loss is the question, and so is whether the untied model wins by its extra parameters alone: a third arm spends the
saved parameters on a wider feed-forward network.
"""

from matplotlib.figure import Figure

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.text import language
from clearhead.lab.training import brief, small, train
from clearhead.model import count_parameters

ARMS = {
    "tied": "the embedding is also the matrix of the logits",
    "untied": "a matrix for each",
    "tied, same size": "tied, and the feed-forward network wider, until there are as many parameters as untied",
}


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    losses, parameters = [], []
    for vocabulary in sizes["vocabularies"]:
        data = language(sizes["characters"], sizes["context"], vocabulary)
        tied = {"kind": "decoder", "head": {"tied": True}, "dropout": sizes["dropout"]}
        config = small(data.tokenizer.size, **tied)
        untied = small(data.tokenizer.size, **(tied | {"head": {"tied": False}}))
        if arm == "untied":
            config = untied
        elif arm == "tied, same size":
            each = config.decoder_layers * (2 * config.d_model + 1)  # parameters of one more inner unit in every layer
            wider = config.d_ff + (count_parameters(untied) - count_parameters(config)) // each
            config = small(data.tokenizer.size, d_ff=wider, **tied)
        settings = brief(sizes["steps"], seed, peak=2e-3, max_tokens=8 * sizes["context"])
        loss = train(config, data.train, settings).scores(data.validation)["loss"]
        losses.append(loss / data.bytes_per_token / 0.6931471805599453)
        parameters.append(count_parameters(config) / 1000)
    return {
        "bits": losses,
        "parameters": parameters,
        "small_bits": losses[0],
        "large_bits": losses[-1],
        "large_parameters": parameters[-1],
    }


def cuts(results: Results) -> Verdict:
    counts = [results.curve(arm, "parameters") for arm in ("tied", "untied")]
    shown = ", ".join(
        f"{1 - tied.mean / untied.mean:.0%} at {size:,} tokens"
        for size, tied, untied in zip(results.sizes["vocabularies"], *counts, strict=True)
    )
    fewer = all(tied.mean < untied.mean for tied, untied in zip(*counts, strict=True))
    return Verdict("holds" if fewer else "does not hold here", f"it saves {shown}")


def improves(results: Results) -> Verdict:
    sizes, steps = results.sizes["vocabularies"], results.sizes["steps"]
    gains = [results.difference_at("untied", "tied", "bits", place) for place in range(len(sizes))]
    better = [size for size, gain in zip(sizes, gains, strict=True) if gain.low > 0]
    worse = [size for size, gain in zip(sizes, gains, strict=True) if gain.high < 0]
    shown = "; ".join(f"{size:,} tokens: {gain}" for size, gain in zip(sizes, gains, strict=True))
    sentence = (
        f"bits per byte untied minus tied after {steps} updates with dropout {results.sizes['dropout']:g}: {shown}. "
        "Models this young do not overfit yet, which is where tying would help"
    )
    if len(better) == len(sizes):
        return Verdict("holds", sentence)
    if better:
        return Verdict("holds only if", f"the vocabulary has {', '.join(f'{b:,}' for b in better)} tokens: {sentence}")
    return Verdict("does not hold here" if worse else "cannot tell at this size", sentence)


def headline(results: Results) -> str:
    saved = 1 - results.mean("tied", "large_parameters") / results.mean("untied", "large_parameters")
    cost = results.difference("tied", "untied", "large_bits")
    return (
        f"At {results.sizes['vocabularies'][-1]:,} tokens tying saves {saved:.0%} of the parameters, and "
        f"{results.sizes['steps']} updates later it is {cost} bits per byte above the untied model."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(2)
    sizes = results.sizes["vocabularies"]
    bits = results.curves(ARMS, "bits")
    lines(axes[0], sizes, bits, "vocabulary (tokens)", "validation loss (bits per byte)", "Loss", "x")
    counts = {arm: results.curve(arm, "parameters") for arm in ARMS if arm != "tied, same size"}
    lines(axes[1], sizes, counts, "vocabulary (tokens)", "parameters (thousands)", "Parameters", "xy", [*ARMS])
    return drawn


EXPERIMENT = Experiment(
    number=6,
    name="weight-tying",
    claim="Sharing the embedding with the output matrix cuts parameters and improves perplexity.",
    parts=(
        Part("Tying cuts parameters.", "There are fewer of them at every vocabulary: holds.", cuts),
        Part(
            "Tying improves perplexity.",
            "It improves a vocabulary if the 95% interval of untied minus tied bits per byte lies above zero. All "
            "vocabularies: holds. Some: holds only for those. None, and one where the interval lies below zero: does "
            "not hold here; otherwise it cannot be told.",
            improves,
        ),
    ),
    arms=ARMS,
    measured="Bits per byte on held-out text of a small language model (Python's standard library), by vocabulary, and "
    "the number of parameters.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "vocabularies": (512, 4096), "characters": 400_000, "context": 64, "steps": 150, "dropout": 0.0},
    full={
        "seeds": 3,
        "vocabularies": (512, 2048, 8192),
        "characters": 4_000_000,
        "context": 128,
        "steps": 600,
        "dropout": 0.0,
    },
    columns={
        "small_bits": "bits per byte, smallest vocabulary",
        "large_bits": "bits per byte, largest vocabulary",
        "large_parameters": "parameters, largest vocabulary (thousands)",
    },
)
