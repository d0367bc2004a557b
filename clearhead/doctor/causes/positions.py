"""Causes that lie in positions: left out, indexed along the wrong axis, too coarse, too short."""

from clearhead.doctor.causes import Facts, Known
from clearhead.doctor.finding import Cause


def calm(facts: Facts) -> bool:
    return facts.none("mode.random", "future.visible", "mode.differs")


def missing(facts: Facts) -> float:
    if not calm(facts) or facts.has("batch.coupled"):
        return 0.2 if facts.has("position.missing") else 0.0
    if facts.among("reach.lost", "view", "source"):
        return 0.3
    if facts.of("position.collide", "all") and facts.none("position.not-relative", "reach.lost"):
        return 0.95
    if facts.has("position.layers") and facts.none("position.not-relative", "reach.lost"):
        return 0.9
    return 0.93 if facts.has("position.missing") else 0.5 if facts.has("position.constant") else 0.0


def axis(facts: Facts) -> float:
    if facts.of("padding.right", "coupled") and facts.none("batch.coupled"):
        return 0.9  # rows depend on each other only where some are padded
    moved = facts.has("position.missing") or facts.has("position.constant")
    return 0.96 if facts.has("batch.coupled") and moved and calm(facts) else 0.5 if facts.has("batch.coupled") else 0.0


def rotary(facts: Facts) -> float:
    elsewhere = facts.none("attention.unnormalised", "prefix.differs", "padding.content", "batch.coupled")
    if facts.has("position.not-relative") and calm(facts) and elsewhere:
        return 0.95 if facts.of("position.not-relative", "relative", 1.0) > 0.01 else 0.5
    if placed(facts):
        return 0.9
    return 0.6 if facts.has("position.missing") and calm(facts) else 0.0


def placed(facts: Facts) -> bool:
    """Do packed documents mind where they stand, though they do not see each other, and positions are relative?"""
    visible, declared = facts.of("packed.differs", "visible", True), facts.of("packed.differs", "positions")
    return not visible and declared in ("rotary", "alibi", "relative") and calm(facts)


def precision(facts: Facts) -> float:
    if facts.has("precision.grows"):
        return 0.95
    if facts.has("position.not-relative") and facts.of("position.not-relative", "relative", 1.0) <= 0.01:
        return 0.96
    if placed(facts):
        return 0.95 if facts.of("packed.differs", "relative", 1.0) < 0.01 else 0.5
    return 0.85 if facts.has("length.collide") and calm(facts) else 0.4 if facts.has("position.not-relative") else 0.0


def table_short(facts: Facts) -> float:
    if (facts.has("length.collide") or facts.has("length.limit")) and calm(facts):
        return 0.9
    far = not facts.of("position.collide", "all") and facts.none("reach.lost")
    return 0.8 if facts.has("position.collide") and calm(facts) and far else 0.0


def limit(facts: Facts) -> float:
    alone = facts.none("reach.lost", "prefix.differs", "batch.coupled", "mode.remembers")
    return 0.9 if facts.has("length.lost") and alone else 0.0


def collide(facts: Facts) -> float:
    lost = facts.has("reach.lost") or facts.has("batch.coupled")
    if not facts.has("position.collide") or not calm(facts) or lost:
        return 0.0
    return 0.5 if facts.of("position.collide", "all") else 0.92


def by_length(facts: Facts) -> float:
    if facts.has("prefix.differs") and calm(facts) and facts.none("reach.lost", "batch.coupled", "mode.random"):
        return 0.9
    return 0.0


def left(facts: Facts) -> float:
    if facts.has("padding.left"):
        return 0.95 if facts.none("finite.padding") else 0.4
    return 0.0


def slopes(facts: Facts) -> float:
    return 0.97 if facts.has("position.slopes") else 0.0


WHERE = ("position", "length", "precision")

CAUSES: list[Known] = [
    (
        Cause(
            "positions-missing",
            "positions are left out",
            "x = self.embedding(tokens)",
            "x = self.embedding(tokens) + self.position(torch.arange(S))",
            "Attention alone cannot tell order: the sentence is a bag of words.",
        ),
        missing,
        WHERE,
    ),
    (
        Cause(
            "positions-axis",
            "positions are indexed by the batch",
            "x + self.table[: x.size(0)]   # (B, S, D)",
            "x + self.table[: x.size(1)]",
            "Every token of row 3 gets position 3; what a sentence means depends on its row.",
        ),
        axis,
        (*WHERE, "batch", "padding"),
    ),
    (
        Cause(
            "rotary-pairing",
            "rotation does not depend on the distance alone",
            "angles.repeat_interleave(2, -1) with rotate_half",
            "torch.cat([angles, angles], -1) with rotate_half",
            "Queries and keys must turn by the same angles in the same pairs, values not at all.",
        ),
        rotary,
        (*WHERE, "padding", "packed"),
    ),
    (
        Cause(
            "position-precision",
            "positions are computed in 16 bits",
            "positions.to(torch.bfloat16) * frequencies",
            "positions.float() * frequencies, cast after cos and sin",
            "bfloat16 has no odd integers above 256: neighbours collide.",
        ),
        precision,
        (*WHERE, "packed"),
    ),
    (
        Cause(
            "position-table-short",
            "the table of positions ends before the context",
            "positions.clamp(max=255)",
            "a table of max_length rows, and an error past it",
            "Past the end, tokens share a position or read another's.",
        ),
        table_short,
        WHERE,
    ),
    (
        Cause(
            "positions-collide",
            "neighbouring tokens share a position",
            "positions // 2",
            "positions",
            "Two tokens with one position cannot be told apart by order.",
        ),
        collide,
        WHERE,
    ),
    (
        Cause(
            "length-limit",
            "tokens past some length are lost",
            "keys[:, :256]",
            "keys",
            "A buffer, a mask or a kernel was made for shorter inputs.",
        ),
        limit,
        WHERE,
    ),
    (
        Cause(
            "position-length",
            "what a position gets depends on the length of the input",
            "positions = arange(S) - S",
            "positions = arange(S)",
            "A prefix then looks different from the same tokens inside the whole, and the cache cannot agree.",
        ),
        by_length,
        (*WHERE, "prefix", "cache", "padding"),
    ),
    (
        Cause(
            "left-padding-positions",
            "positions count the padding on the left",
            "torch.arange(S)",
            "(padding.cumsum(-1) - 1).clamp(min=0)",
            "A prompt's continuation then depends on how long its neighbours are.",
        ),
        left,
        ("padding",),
    ),
    (
        Cause(
            "alibi-slopes",
            "ALiBi's slopes are not the paper's",
            "2 ** (-8 * i / heads)   # i from 0, or bias with a plus",
            "2 ** (-8 * (i + 1) / heads), subtracted; interleaved from the next power of two otherwise",
            "Each head needs its own slope, and distance must lower the score.",
        ),
        slopes,
        WHERE,
    ),
]
