"""Causes that lie in how sub-layers are put together: activations, residuals, dropout, who looks at the source."""

from clearhead.doctor.causes import Facts, Known
from clearhead.doctor.finding import Cause


def causal_source(facts: Facts) -> float:
    if facts.has("cross.blind"):
        return 0.97 if facts.of("cross.blind", "causal") else 0.8
    return 0.7 if facts.has("cross.encoder") else 0.0


def rate(facts: Facts) -> float:
    return 0.95 if facts.has("dropout.stays") else 0.8 if facts.has("dropout.rate") else 0.0


def unscaled(facts: Facts) -> float:
    return 0.8 if facts.has("dropout.differs") else 0.0


def bend(facts: Facts) -> float:
    return (0.97 if facts.of("bend.missing", "wide") else 0.8) if facts.has("bend.missing") else 0.0


CAUSES: list[Known] = [
    (
        Cause(
            "activation-missing",
            "two linear maps meet without an activation",
            "self.down(self.up(x))",
            "self.down(F.relu(self.up(x)))",
            "Together they are one linear map: the width between them is paid for and buys nothing.",
        ),
        bend,
        ("bend",),
    ),
    (
        Cause(
            "residual-missing",
            "a sub-layer has no residual, or not of what it reads",
            "x = self.attention(self.norm(x))",
            "x = x + self.attention(self.norm(x))",
            "What a layer does not pass on is lost to all that follow, and so are the gradients on their way back.",
        ),
        lambda facts: 0.97 if facts.has("residual.missing") or facts.has("residual.normed") else 0.0,
        ("residual", "reach"),
    ),
    (
        Cause(
            "source-causal",
            "a causal mask reaches the source",
            "self.cross(x, memory, mask=causal_mask)",
            "self.cross(x, memory, mask=source_mask)",
            "The source is known from the start: every target token may read all of it.",
        ),
        causal_source,
        ("cross", "reach"),
    ),
    (
        Cause(
            "cross-missing",
            "a decoder layer does not look at the source",
            "if self.number == 0: x = x + self.cross(x, memory)",
            "x = x + self.cross(x, memory)   # in every layer",
            "The later layers only work on what the first has read.",
        ),
        lambda facts: 0.9 if facts.has("cross.layers") else 0.0,
        ("cross", "parameters"),
    ),
    (
        Cause(
            "dropout-rate",
            "a dropout rate does not reach every place",
            "MultiHeadAttention(heads, width)   # its own default of 0.1",
            "MultiHeadAttention(heads, width, dropout)",
            "Turned off or up, dropout goes on in one place with a rate nobody asked for.",
        ),
        rate,
        ("dropout", "update"),
    ),
    (
        Cause(
            "dropout-unscaled",
            "dropout does not keep the mean",
            "x * mask",
            "x * mask / (1 - p)",
            "In evaluation everything is larger than in training, by one over the probability of keeping.",
        ),
        unscaled,
        ("dropout", "mode"),
    ),
]
