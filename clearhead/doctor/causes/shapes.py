"""Causes that lie in a shape: a view for a transpose, an axis taken for another, rows that mix."""

from clearhead.doctor.causes import Facts, Known
from clearhead.doctor.finding import Cause

SCRAMBLED = ("future", "prefix", "reach", "batch", "padding", "cache", "packed", "invariance", "position", "length")


def beside_scores(facts: Facts) -> bool:
    """The future is visible although the scores hide it."""
    return facts.has("future.visible") and facts.scores("standing") is False


def everywhere(facts: Facts) -> bool:
    """Does every position see every later one?"""
    positions, offsets = facts.of("future.visible", "positions", []), facts.of("future.visible", "offsets", [])
    return len(positions) >= 10 and len(offsets) >= 10


def head_view(facts: Facts) -> float:
    if beside_scores(facts) and facts.none("attention.unnormalised"):
        return 0.7 if everywhere(facts) or facts.has("batch.coupled") else 0.9
    if facts.has("future.visible", "prefix.differs") and facts.scores("standing") is None:
        return 0.5
    if facts.has("batch.coupled") and facts.none("reach.lost", "attention.unnormalised", "mode.random"):
        return 0.75
    return 0.6 if facts.has("prefix.differs", "reach.lost") else 0.0


def head_view_both(facts: Facts) -> float:
    if facts.has("prefix.differs", "reach.lost") and facts.of("reach.lost", "share", 0) < 0.95:
        return 0.92 if facts.scores("standing") is not True else 0.3
    return 0.0


def swapped(facts: Facts) -> float:
    if facts.has("batch.coupled", "reach.lost"):
        return 0.95
    return 0.6 if facts.has("batch.coupled") and facts.none("mode.random", "attention.unnormalised") else 0.0


def softmax_axis(facts: Facts) -> float:
    if facts.has("attention.unnormalised") and facts.none("mode.random"):
        wrong = facts.of("attention.unnormalised", "axis") != -1
        return 0.97 if wrong else 0.3
    return 0.0


def norm_axis(facts: Facts) -> float:
    if beside_scores(facts) and facts.none("attention.unnormalised"):
        return 0.85 if everywhere(facts) else 0.6
    if facts.has("batch.coupled") and facts.none("attention.unnormalised", "mode.random"):
        return 0.74
    if facts.has("padding.content") and facts.none("attention.unnormalised", "future.visible", "batch.coupled"):
        return 0.65
    return 0.0


def routing(facts: Facts) -> float:
    if facts.has("batch.coupled") and beside_scores(facts) and facts.none("attention.unnormalised"):
        return 0.9
    return 0.3 if facts.has("batch.coupled") else 0.0


def coupled(facts: Facts) -> float:
    return 0.8 if facts.has("batch.coupled") and facts.none("mode.random", "attention.unnormalised") else 0.0


def grouped_axis(facts: Facts) -> float:
    if facts.has("position.collide", "position.not-relative") and facts.none("batch.coupled", "future.visible"):
        return 0.4 if facts.of("position.collide", "all") else 0.96
    recent = 1 in facts.of("reach.lost", "distances", [])
    if facts.has("reach.lost") and recent and facts.none("future.visible", "batch.coupled", "mode.differs"):
        return 0.85 if facts.of("reach.lost", "view") != "source" else 0.2
    return 0.0


def reach_lost(facts: Facts) -> float:
    return 0.75 if facts.has("reach.lost") and facts.none("future.visible", "batch.coupled") else 0.0


def source_unused(facts: Facts) -> float:
    if facts.has("invariance.source") and facts.none("reach.lost"):
        return 0.3
    return 0.97 if facts.among("reach.lost", "view", "source") and facts.of("reach.lost", "all") else 0.0


def heads_shared(facts: Facts) -> float:
    return 0.9 if facts.has("parameters.unused-rows") else 0.0


CAUSES: list[Known] = [
    (
        Cause(
            "head-view",
            "heads are split or merged by a view that mixes tokens",
            "x.view(B, H, S, d)",
            "x.view(B, S, H, d).transpose(1, 2)",
            "view only renames the axes of what lies in memory; the tokens' features land in other tokens' heads.",
        ),
        head_view,
        SCRAMBLED,
    ),
    (
        Cause(
            "head-view-both",
            "heads are split and merged by views, both wrong",
            "x.view(B, H, S, d) ... y.reshape(B, S, D)",
            "x.view(B, S, H, d).transpose(1, 2) ... y.transpose(1, 2).reshape(B, S, D)",
            "The two mistakes undo each other for the shapes, but each head sees only a stretch of the sequence.",
        ),
        head_view_both,
        SCRAMBLED,
    ),
    (
        Cause(
            "batch-sequence-swapped",
            "batch and sequence are swapped",
            "attention(x)   # (B, S, D) where (S, B, D) is wanted",
            "attention(x.transpose(0, 1)).transpose(0, 1)",
            "Tokens attend to the same place in other sentences, not to their own sentence.",
        ),
        swapped,
        SCRAMBLED,
    ),
    (
        Cause(
            "softmax-axis",
            "the softmax runs over the wrong axis",
            "scores.softmax(dim=1)",
            "scores.softmax(dim=-1)",
            "Weights must sum to one over the keys of each query, not over heads, rows or queries.",
        ),
        softmax_axis,
        (*SCRAMBLED, "attention"),
    ),
    (
        Cause(
            "norm-axis",
            "a mean or norm runs over tokens or rows",
            "x.mean(dim=1)",
            "x.mean(dim=-1)",
            "Normalisation belongs to one token's features; over the sequence it carries the future back.",
        ),
        norm_axis,
        SCRAMBLED,
    ),
    (
        Cause(
            "batch-coupled-routing",
            "tokens compete for room across the batch",
            "gates.topk(capacity, dim=0)   # experts choose tokens",
            "gates.argmax(dim=-1)   # each token chooses its expert",
            "Whether a token is served depends on later tokens and on other rows.",
        ),
        routing,
        SCRAMBLED,
    ),
    (
        Cause(
            "batch-coupled",
            "rows of a batch influence each other",
            "x - x.mean(dim=0)",
            "keep every operation within a row",
            "Something runs over axis 0, broadcasts over it, or takes one row for all.",
        ),
        coupled,
        SCRAMBLED,
    ),
    (
        Cause(
            "grouped-heads-axis",
            "keys are repeated along the sequence",
            "k.repeat_interleave(groups, dim=1)   # (B, S, G, d)",
            "k.repeat_interleave(groups, dim=2)   # the axis of the heads",
            "The sequence is stretched: each token stands where an earlier one should.",
        ),
        grouped_axis,
        ("reach", "position", "cache"),
    ),
    (
        Cause(
            "reach-lost",
            "some tokens never reach the attention",
            "keys[:, :-1]",
            "keys",
            "A slice, a mask or a table leaves tokens out that should be seen.",
        ),
        reach_lost,
        ("reach", "padding"),
    ),
    (
        Cause(
            "source-unused",
            "the decoder never reads the source",
            "self.cross(x, x, x)",
            "self.cross(x, memory, memory)",
            "Keys and values of cross-attention come from the encoder's output.",
        ),
        source_unused,
        ("reach", "position", "invariance", "parameters"),
    ),
    (
        Cause(
            "heads-shared",
            "several heads read the same features",
            "k[:, :1].expand(-1, H, -1, -1)",
            "k",
            "The other heads' weights never matter and never learn.",
        ),
        lambda facts: 0.9 if facts.has("scale.heads") else heads_shared(facts),
        ("parameters", "scale.heads"),
    ),
]
