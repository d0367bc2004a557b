"""Causes that lie in numbers: scales, starting sizes, overflow, and what only reference weights can show."""

from clearhead.doctor.causes import Facts, Known, Score
from clearhead.doctor.finding import Cause

NORMS = {"norm.scale", "norm.size", "norm.zeros"}


def only_parity(facts: Facts) -> bool:
    return facts.has("parity.differs") and facts.only("parity.differs")


def size(facts: Facts) -> str:
    """How far off the reference the outputs are: a detail, a part of a layer, or something else altogether."""
    relative = facts.of("parity.differs", "relative", 0.0)
    return "" if not only_parity(facts) else "detail" if relative < 0.02 else "part" if relative < 0.25 else "all"


def parity(detail: float, part: float, everything: float) -> Score:
    """How well a cause fits each size."""
    return lambda facts: {"detail": detail, "part": part, "all": everything}.get(size(facts), 0.0)


def grouped(facts: Facts) -> float:
    """Heads of queries change places; where nothing groups them, they are only another order of features."""
    fits = parity(0.3, 0.85, 0.9)(facts)
    return fits if facts.of("parity.differs", "grouped", True) else min(fits, 0.3)


def weights_do_not_load(facts: Facts) -> float:
    return 0.9 if facts.has("parity.weights") else parity(0.3, 0.6, 0.7)(facts)


CAUSES: list[Known] = [
    (
        Cause(
            "scale-missing",
            "scores are not divided by the root of the head width",
            "q @ k.transpose(-2, -1)",
            "q @ k.transpose(-2, -1) / math.sqrt(head_width)",
            "Wide heads saturate the softmax: one key gets everything, and gradients vanish.",
        ),
        lambda facts: 0.97 if facts.has("scale.grows") else 0.0,
        ("scale",),
    ),
    (
        Cause(
            "embedding-scale",
            "the embedding scale is rounded",
            "torch.tensor(d_model ** 0.5, dtype=torch.bfloat16)",
            "math.sqrt(d_model)",
            "A scale kept in 16 bits is off by up to half a percent in every token.",
        ),
        lambda facts: 0.97 if facts.has("embedding.scale") else parity(0.81, 0.81, 0.3)(facts),
        ("embedding", "parity"),
    ),
    (
        Cause(
            "init-scale",
            "the untrained logits are too large",
            "nn.Embedding(V, d) tied to the head   # std 1",
            "nn.init.normal_(embedding.weight, std=0.02)",
            "Training first has to unlearn confident nonsense.",
        ),
        lambda facts: 0.9 if facts.has("initial.loss") else 0.0,
        ("initial",),
    ),
    (
        Cause(
            "softmax-overflow",
            "the softmax overflows",
            "scores.exp() / scores.exp().sum(-1)",
            "scores.softmax(-1)",
            "exp(89) is infinite in float32; subtract the row's maximum first.",
        ),
        lambda facts: 0.95 if facts.has("finite.large") else 0.3 if facts.has("finite.values") else 0.0,
        ("finite", "padding"),
    ),
    (
        Cause(
            "qkv-order",
            "a fused projection is split in another order",
            "k, q, v = qkv.chunk(3, -1)",
            "q, k, v = qkv.chunk(3, -1)",
            "Trained from scratch nobody notices; with loaded weights everything is wrong.",
        ),
        parity(0.3, 0.4, 0.9),
        ("parity",),
    ),
    (
        Cause(
            "grouped-heads-order",
            "key/value heads go to the wrong queries",
            "k.repeat(1, groups, 1, 1)",
            "k.repeat_interleave(groups, dim=1)",
            "Query head h belongs to key head h // groups, not h % G.",
        ),
        grouped,
        ("parity",),
    ),
    (
        Cause(
            "activation-variant",
            "another activation than the weights were trained with",
            'F.gelu(x, approximate="tanh")',
            "F.gelu(x)",
            "Exact and tanh GELU differ by a thousandth; over layers it shows.",
        ),
        parity(0.9, 0.4, 0.3),
        ("parity",),
    ),
    (
        Cause(
            "norm-epsilon",
            "the normalisation differs in a detail",
            "x / (x.std() + eps)",
            "x / sqrt(variance + eps)",
            "The place of epsilon, its value, or a biased against an unbiased variance.",
        ),
        lambda facts: 0.9 if facts.ids & NORMS else parity(0.7, 0.85, 0.3)(facts),
        ("parity", "norm"),
    ),
    (
        Cause(
            "weights-mismatch",
            "the reference weights do not fit",
            "other names or shapes",
            "a mapping between the two",
            "The model cannot be compared until its parameters correspond.",
        ),
        weights_do_not_load,
        ("parity",),
    ),
]
