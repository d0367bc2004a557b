"""Where the parameters are: does the feed-forward network hold most of them?

In each layer of width D a feed-forward network of width 4 D has 8 D² weights, an attention 4 D²: two thirds against one
third. But a decoder that also reads a source has two attentions to one feed-forward network, and the embedding has V·D
weights however many layers there are. So the answer depends on what the share is taken of, and on the model. Nothing is
random here and nothing is trained: parameters are counted, those of a tied head once.
"""

from matplotlib.figure import Figure

from clearhead.lab.drawing import COLOURS, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.model import configure
from clearhead.skeleton import skeleton

ARMS = {
    "base": "the paper's base model, encoder-decoder",
    "big": "the paper's big model, encoder-decoder",
    "gpt2": "decoder-only, 12 layers of width 768",
    "bert-base": "encoder-only, 12 layers of width 768",
    "llama": "decoder-only of Llama's kind, 8 layers of width 512, SwiGLU, grouped heads",
    "tiny": "this package's small model, encoder-decoder",
}
PARTS = ("feed-forward", "attention", "embedding and head", "norms")


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    counts = dict.fromkeys(PARTS, 0)
    vocabulary = {} if arm not in ("base", "big", "tiny") else {"vocab_size": sizes["vocabulary"]}
    for name, parameter in skeleton(configure(arm, **vocabulary)).named_parameters():
        words = name.split(".")
        if "norm" in words[-2]:
            part = "norms"
        elif "layers" not in words:
            part = "embedding and head"
        else:
            part = "feed-forward" if "feed_forward" in words else "attention"
        counts[part] += parameter.numel()
    total, layers = sum(counts.values()), counts["feed-forward"] + counts["attention"]
    return {
        "total": float(total),
        "of_layers": counts["feed-forward"] / layers,
        "of_all": counts["feed-forward"] / total,
        "attention": counts["attention"] / total,
        "embedding": counts["embedding and head"] / total,
        "norms": counts["norms"] / total,
    }


def most(name: str, results: Results) -> Verdict:
    shares = {arm: results.mean(arm, name) for arm in ARMS}
    sentence = ", ".join(f"{arm} {share:.0%}" for arm, share in shares.items())
    good = [arm for arm, share in shares.items() if share > 0.5]
    if len(good) == len(ARMS):
        return Verdict("holds", sentence)
    if good:
        return Verdict("holds only if", f"one speaks of {', '.join(good)}: {sentence}")
    return Verdict("does not hold here", sentence)


def headline(results: Results) -> str:
    return (
        f"Two thirds of the weights in a layer with one attention are feed-forward; counted over whole models it is "
        f"{results.mean('base', 'of_all'):.0%} of the paper's base model and {results.mean('llama', 'of_all'):.0%} of "
        "a small one of Llama's kind, because the embedding counts too."
    )


def figure(results: Results) -> Figure:
    drawn, (axes,) = panels(1, width=8.5, height=3.8)
    columns = {"feed-forward": "of_all", "attention": "attention", "embedding and head": "embedding", "norms": "norms"}
    hatches = ("", "///", "...", "")
    for row, arm in enumerate(ARMS):
        left = 0.0
        for look, name in enumerate(columns.values()):
            share = results.mean(arm, name)
            colour = COLOURS[look]
            axes.barh(row, share, left=left, color=colour, hatch=hatches[look], edgecolor="white", height=0.65)
            if share > 0.06:
                box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1}
                axes.annotate(f"{share:.0%}", (left + share / 2, row), ha="center", va="center", fontsize=9, bbox=box)
            left += share
    axes.set_yticks(range(len(ARMS)), [f"{arm}, {results.mean(arm, 'total') / 1e6:,.1f} M" for arm in ARMS])
    axes.set_ylim(len(ARMS) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of all parameters")
    handles = [container[0] for container in axes.containers[: len(columns)]]
    axes.legend(handles, columns, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=9)
    return drawn


EXPERIMENT = Experiment(
    number=18,
    name="parameters",
    claim="Surprisingly, most of the parameter count lives in the feed-forward network, not in attention.",
    parts=(
        Part(
            "There are more parameters in the feed-forward network than in attention.",
            "Of the weights of feed-forward networks and attentions, the former have more than half in every preset: "
            "holds; in some: holds only for those; in none: does not hold here.",
            lambda results: most("of_layers", results),
        ),
        Part(
            "Most of all parameters are in the feed-forward network.",
            "The same rule for its share of all parameters.",
            lambda results: most("of_all", results),
        ),
    ),
    arms=ARMS,
    measured="The parameters of each preset, counted by the part they belong to; encoder-decoders with a joint "
    "vocabulary of 37,000 tokens, as in the paper.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 1, "vocabulary": 37_000},
    full={"seeds": 3, "vocabulary": 37_000},
    columns={
        "total": "parameters",
        "of_layers": "feed-forward, of attention and feed-forward",
        "of_all": "feed-forward, of all",
        "embedding": "embedding and head, of all",
    },
)
