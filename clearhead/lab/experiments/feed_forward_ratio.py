"""The feed-forward network's width: is four times the model's width a law?

At equal parameters a wider feed-forward network is paid for by a narrower model. The arms share depth, heads, data and
number of parameters, and differ in how these are divided.
"""

from matplotlib.figure import Figure

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.sizing import of_size
from clearhead.lab.text import language
from clearhead.lab.training import brief, train
from clearhead.model import count_parameters

RATIOS = (1, 2, 4, 8)
ARMS = {f"{ratio}x": f"d_ff = {ratio} · d_model, or as near as equal parameters allow" for ratio in RATIOS}


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    data = language(sizes["characters"], sizes["context"])
    config = of_size(sizes["parameters"], data.tokenizer.size, float(arm[:-1]), decoder_layers=sizes["layers"])
    settings = brief(sizes["steps"], seed, peak=2e-3, max_tokens=8 * sizes["context"])
    trained = train(config, data.train, settings)
    return {
        "loss": trained.scores(data.validation)["loss"],
        "parameters": float(count_parameters(config)),
        "d_model": float(config.d_model),
        "d_ff": float(config.d_ff),
    }


def no_law(results: Results) -> Verdict:
    worse = {arm: results.difference(arm, "4x", "loss") for arm in ARMS if arm != "4x"}
    sentence = f"loss minus that of 4x, in nats: {', '.join(f'{arm} {gap}' for arm, gap in worse.items())}"
    if all(gap.low > 0.02 for gap in worse.values()):
        return Verdict("does not hold here", f"every other ratio is clearly worse: {sentence}")
    equal = [arm for arm, gap in worse.items() if gap.high < 0.02]
    if equal:
        return Verdict("holds", f"as good as 4x, within 0.02 nats: {', '.join(equal)}; {sentence}")
    return Verdict("cannot tell at this size", sentence)


def headline(results: Results) -> str:
    losses = {arm: results.mean(arm, "loss") for arm in ARMS}
    spread = max(losses.values()) - min(losses.values())
    return (
        f"From {RATIOS[0]} to {RATIOS[-1]} times the width, at equal parameters, the loss moves by {spread:.3f} nats; "
        f"{min(losses, key=lambda arm: losses[arm])} is best."
    )


def figure(results: Results) -> Figure:
    drawn, (axes,) = panels(1, width=5.5)
    title = f"{results.sizes['parameters']:,} parameters, {results.sizes['layers']} layers"
    losses = {"validation loss": [results.interval(arm, "loss") for arm in ARMS]}
    lines(axes, RATIOS, losses, "d_ff / d_model", "loss (nats per character)", title, "x")
    return drawn


EXPERIMENT = Experiment(
    number=8,
    name="feed-forward-ratio",
    claim="The 4x expansion of the feed-forward network is a hyperparameter, not a law.",
    parts=(
        Part(
            "The 4x expansion is no law.",
            "A ratio does as well as 4x if the 95% interval of its loss minus that of 4x lies below 0.02 nats. One "
            "that does: holds. All others worse by more than 0.02 with their whole interval: does not hold here. "
            "Otherwise: cannot tell.",
            no_law,
        ),
    ),
    arms=ARMS,
    measured="Validation loss of a small language model of characters with the same number of parameters.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "parameters": 120_000, "layers": 2, "characters": 300_000, "context": 64, "steps": 200},
    full={"seeds": 5, "parameters": 400_000, "layers": 3, "characters": 3_000_000, "context": 128, "steps": 1200},
    columns={"loss": "loss (nats)", "parameters": "parameters", "d_model": "d_model", "d_ff": "d_ff"},
)
