"""Weight tying (section 3.4; Press and Wolf, 2017): one matrix for the embedding and for the logits.

It saves vocabulary · width parameters, which is most of a small model with a large vocabulary. Whether it also improves
the loss is the question, and so is whether the untied model wins by its extra parameters alone: a third arm spends the
saved parameters on a wider feed-forward network. Where tying is said to help, texts are small and are read many times
over, with dropout; so it is tried with and without, each arm at the better of its rates and at its best moment.
"""

import math
from functools import partial

from matplotlib.figure import Figure

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.text import Language, language
from clearhead.lab.training import brief, small, train
from clearhead.model import ModelConfig, count_parameters
from clearhead.training.loop import Loop
from clearhead.training.validate import evaluate

ARMS = {
    "tied": "the embedding is also the matrix of the logits",
    "untied": "a matrix for each",
    "tied, same size": "tied, and the feed-forward network wider, until there are as many parameters as untied",
}


def configured(arm: str, vocabulary: int, dropout: float) -> ModelConfig:
    tied = {"kind": "decoder", "head": {"tied": True}, "dropout": dropout}
    config = small(vocabulary, **tied)
    untied = small(vocabulary, **(tied | {"head": {"tied": False}}))
    if arm == "untied":
        return untied
    if arm == "tied":
        return config
    each = config.decoder_layers * (2 * config.d_model + 1)  # parameters of one more inner unit in every layer
    wider = config.d_ff + (count_parameters(untied) - count_parameters(config)) // each
    return small(vocabulary, d_ff=wider, **tied)


def course(config: ModelConfig, data: Language, seed: int, peak: float, sizes: Sizes) -> list[float]:
    """Bits per byte on held-out text at several moments of a training; a breakdown counts as guessing."""
    losses: list[float] = []

    def look(loop: Loop) -> None:
        if loop.progress.step % (sizes["steps"] // sizes["points"]) == 0:
            plan = data.validation.plan(0, 0, 4096)[: sizes["batches"]]
            losses.append(evaluate(loop.objective, data.validation, plan, loop.ranks)["loss"])

    settings = brief(sizes["steps"], seed, peak, max_tokens=8 * sizes["context"])
    train(config, data.train, settings, watch=[look])
    losses += [math.log(config.vocab_size)] * (sizes["points"] - len(losses))
    return [loss / data.bytes_per_token / math.log(2) for loss in losses]


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    bits, parameters, last = [], [], []
    for vocabulary, dropout in conditions(sizes):
        data = language(sizes["characters"], sizes["context"], vocabulary)
        config = configured(arm, data.tokenizer.size, dropout)
        courses = [course(config, data, seed, peak, sizes) for peak in sizes["peaks"]]
        bits.append(min(map(min, courses)))
        last.append(min(courses, key=min)[-1])
        parameters.append(count_parameters(config) / 1000)
    return {
        "bits": bits,
        "last_bits": last,
        "parameters": parameters,
        "small_bits": bits[0],
        "large_bits": bits[-1],
        "large_parameters": parameters[-1],
    }


def conditions(sizes: Sizes) -> list[tuple[int, float]]:
    """Each vocabulary with each dropout, in the order of the numbers' lists."""
    dropouts = sizes["dropouts"] if "dropouts" in sizes else [sizes["dropout"]]  # once there was only one
    return [(vocabulary, dropout) for dropout in dropouts for vocabulary in sizes["vocabularies"]]


def named(condition: tuple[int, float]) -> str:
    return f"{condition[0]:,} tokens, dropout {condition[1]:g}"


def cuts(results: Results) -> Verdict:
    counts = [results.curve(arm, "parameters") for arm in ("tied", "untied")]
    shown = ", ".join(
        f"{1 - tied.mean / untied.mean:.0%} at {size:,} tokens"
        for size, tied, untied in zip(results.sizes["vocabularies"], *counts, strict=False)  # the same at any dropout
    )
    fewer = all(tied.mean < untied.mean for tied, untied in zip(*counts, strict=True))
    return Verdict("holds" if fewer else "does not hold here", f"it saves {shown}")


def improves(other: str, results: Results) -> Verdict:
    """Is the tied model (or, wider, `other`) better than the untied one?"""
    tried = conditions(results.sizes)
    gains = [results.difference_at("untied", other, "bits", place) for place in range(len(tried))]
    pairs = [*zip(map(named, tried), gains, strict=True)]
    better = [name for name, gain in pairs if gain.low > 0]
    shown = "; ".join(f"{name}: {gain}" for name, gain in pairs)
    sentence = f"bits per byte untied minus {other}, {said_of_training(results)}: {shown}"
    if len(better) == len(tried):
        return Verdict("holds", sentence)
    if better:
        return Verdict("holds only if", f"it is {' or '.join(better)}: {sentence}")
    return Verdict(
        "does not hold here" if any(gain.high < 0 for gain in gains) else "cannot tell at this size", sentence
    )


def said_of_training(results: Results) -> str:
    steps = results.sizes["steps"]
    if "peaks" not in results.sizes:
        return f"after {steps} updates at one learning rate, too few to overfit"
    return f"each at its best moment within {steps:,} updates and at the better of {len(results.sizes['peaks'])} rates"


def headline(results: Results) -> str:
    saved = 1 - results.mean("tied", "large_parameters") / results.mean("untied", "large_parameters")
    cost = results.difference("tied", "untied", "large_bits")
    return (
        f"At {results.sizes['vocabularies'][-1]:,} tokens tying saves {saved:.0%} of the parameters; "
        f"the tied model ends {cost} bits per byte above the untied one ({named(conditions(results.sizes)[-1])}, "
        f"{said_of_training(results)})."
    )


def figure(results: Results) -> Figure:
    sizes, tried = results.sizes["vocabularies"], conditions(results.sizes)
    dropouts = [*dict.fromkeys(dropout for _, dropout in tried)]
    drawn, axes = panels(len(dropouts) + 1)
    for number, (panel, dropout) in enumerate(zip(axes, dropouts, strict=False)):
        some = slice(number * len(sizes), (number + 1) * len(sizes))
        bits = {arm: curve[some] for arm, curve in results.curves(ARMS, "bits").items()}
        title = f"Loss, dropout {dropout:g}"
        lines(panel, sizes, bits, "vocabulary (tokens)", "validation loss (bits per byte)", title, "x")
    counts = {arm: results.curve(arm, "parameters")[: len(sizes)] for arm in ARMS if arm != "tied, same size"}
    lines(axes[-1], sizes, counts, "vocabulary (tokens)", "parameters (thousands)", "Parameters", "xy", [*ARMS])
    return drawn


EXPERIMENT = Experiment(
    number=6,
    name="weight-tying",
    claim="Sharing the embedding with the output matrix cuts parameters and improves perplexity.",
    parts=(
        Part("Tying cuts parameters.", "There are fewer of them at every vocabulary: holds.", cuts),
        Part(
            "Tying improves perplexity.",
            "It improves a vocabulary and dropout if the 95% interval of untied minus tied bits per byte lies above "
            "zero. All of them: holds. Some: holds only for those. None, and one where the interval lies below zero: "
            "does not hold here; otherwise it cannot be told.",
            partial(improves, "tied"),
        ),
        Part(
            "Tying improves perplexity if what it saves is spent on the layers.",
            "The same rule for the tied model that is as large as the untied one.",
            partial(improves, "tied, same size"),
        ),
    ),
    arms=ARMS,
    measured="Bits per byte on held-out text of a small language model (Python's standard library), by vocabulary "
    "and dropout: the lowest of several moments of training and of the rates tried; and the number of parameters.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={
        "seeds": 3,
        "vocabularies": (512, 4096),
        "dropouts": (0.0, 0.2),
        "peaks": (1e-3, 3e-3),
        "characters": 100_000,
        "context": 64,
        "steps": 150,
        "points": 3,
        "batches": 4,
    },
    full={
        "seeds": 4,
        "vocabularies": (1024, 4096),
        "dropouts": (0.0, 0.2),
        "peaks": (1e-3, 3e-3),
        "characters": 400_000,
        "context": 128,
        "steps": 1500,
        "points": 6,
        "batches": 8,
    },
    minutes=(4.0, 60.0),
    columns={
        "small_bits": "bits per byte, smallest vocabulary, least dropout",
        "large_bits": "bits per byte, largest vocabulary, most dropout",
        "large_parameters": "parameters, largest vocabulary (thousands)",
    },
)
