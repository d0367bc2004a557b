"""How splitting and merging heads usually goes wrong."""

from collections.abc import Callable, Mapping
from typing import Any

from clearhead.learn.exercise import Mistake

VIEW = "x.view(batch, length, heads, width // heads)"
SPLIT = VIEW + ".transpose(1, 2)"
MERGE = "x.transpose(1, 2).flatten(-2)"
SHAPING = r"view|reshape|unflatten|permute|transpose|flatten|rearrange"

Findings = Mapping[str, dict[str, Any]]


def found(id: str, score: float) -> Callable[[Findings], float]:
    return lambda findings: score if id in findings else 0.0


def split(id: str, say: str, new: str, where: str = SHAPING) -> Mistake:
    return Mistake(id, "split_heads", say, changes=((SPLIT, new),), where=where)


def merge(id: str, say: str, new: str, where: str = SHAPING) -> Mistake:
    return Mistake(id, "merge_heads", say, changes=((MERGE, new),), where=where)


def shown(id: str, part: str, say: str, finding: str, score: float) -> Mistake:
    return Mistake(id, part, say, where=SHAPING, fits=found(finding, score))


DEALT = "the features were dealt in turn, like cards: head h should own d neighbours, from h·d on"
SWAPPED = "rows of the batch are mixed: batch and sequence are taken for each other"
MIXED = "features of one token came to another: a view may cut the features in two, but moves no dimension"
DETACHED = "the values are right, but nothing flows back: the result was cut off from x"
SQUEEZED = "squeeze() without a dimension takes every dimension of size one away, that of the batch too: name the one"
CUT = r"detach|data|no_grad|tensor\(|numpy|tolist|empty|zeros"

MISTAKES = (
    shown(
        "head-view-both",
        "split_heads",
        "both parts are views, and undo each other: the round trip is perfect, but each head alone holds tokens, "
        "not features",
        "heads.both",
        1.0,
    ),
    split("head-view", MIXED, "x.reshape(batch, heads, length, width // heads)"),
    shown("head-view", "split_heads", MIXED, "heads.token", 0.7),
    split("head-view", MIXED, "torch.stack(x.chunk(heads, dim=1), dim=1)", r"chunk|split"),
    split(
        "head-view",
        MIXED,
        "x.transpose(1, 2).reshape(batch, heads, length, width // heads)",
    ),
    split(
        "head-view",
        MIXED,
        "x.transpose(1, 2).reshape(batch, length, heads, width // heads).transpose(1, 2)",
    ),
    split("features-in-turn", DEALT, "x.view(batch, length, width // heads, heads).permute(0, 3, 1, 2)"),
    shown("features-order", "split_heads", "a head holds other features than its own", "heads.feature", 0.7),
    split(
        "heads-not-moved",
        "the heads are split, but still behind the tokens: S and H must change places",
        VIEW,
        r"view|reshape|unflatten|stack|return",
    ),
    split("heads-moved-wrong", "the wrong dimensions changed places: H and d", VIEW + ".transpose(2, 3)"),
    split("heads-moved-wrong", "the wrong dimensions changed places: S and d", VIEW + ".transpose(1, 3)"),
    split("heads-moved-wrong", "tokens and features have changed places", SPLIT + ".transpose(2, 3)"),
    split("heads-first", "the heads come before the batch: it should stay first", VIEW + ".permute(2, 0, 1, 3)"),
    split(
        "heads-in-batch",
        "heads and batch were run together: they should be dimensions of their own",
        SPLIT + ".flatten(0, 1)",
    ),
    split(
        "heads-in-batch",
        "heads and batch are mixed: the pieces were laid head after head, and read back row after row",
        "torch.cat(x.chunk(heads, -1), 0).view(batch, heads, length, -1)",
        r"cat|stack|view|reshape|chunk|split",
    ),
    split(
        "heads-for-width",
        "the number of heads was taken for the width of one: d = D / H",
        "x.view(batch, length, -1, heads).transpose(1, 2)",
    ),
    split(
        "heads-for-width",
        "the number of heads was taken for the width of one: d = D / H",
        "x.view(batch, length, heads, heads).transpose(1, 2)",
    ),
    split(
        "batch-sequence-swapped",
        SWAPPED,
        "x.reshape(length, batch * heads, -1).transpose(0, 1).reshape(batch, heads, length, -1)",
    ),
    split("batch-sequence-swapped", SWAPPED, "x.view(length, batch, heads, width // heads).permute(1, 2, 0, 3)"),
    split("batch-sequence-swapped", SWAPPED, "x.transpose(0, 1).reshape(batch, heads, length, width // heads)"),
    split("batch-sequence-swapped", SWAPPED, VIEW + ".permute(1, 2, 0, 3)"),
    shown("batch-sequence-swapped", "split_heads", SWAPPED, "heads.row", 0.75),
    split(
        "heads-shared",
        "every head holds the same features: each should have its own",
        "x[:, None, :, : width // heads].expand(-1, heads, -1, -1)",
        r"expand|repeat|\[",
    ),
    shown("heads-shared", "split_heads", "some features are in two heads, and others in none", "heads.lost", 0.7),
    split("heads-order", "the heads are in another order: the first features belong to head 0", SPLIT + ".flip(1)"),
    split(
        "width-not-divided",
        "every head holds all D features: it should have a share of them, d = D / H",
        "x[:, None].expand(-1, heads, -1, -1)",
        r"expand|repeat|stack",
    ),
    split(
        "heads-as-list", "a tuple of heads came back: one tensor is wanted", "x.chunk(heads, dim=-1)", r"chunk|split"
    ),
    split("detached", DETACHED, SPLIT + ".detach()", CUT),
    # ---- and back
    merge("head-view", MIXED + ": first put H behind S again", "x.reshape(x.size(0), x.size(2), -1)"),
    merge("head-view", MIXED, "x.transpose(2, 3).reshape(x.size(0), x.size(2), -1)"),
    merge("head-view", MIXED, "x.transpose(1, 3).reshape(x.size(0), x.size(2), -1)"),
    shown("head-view", "merge_heads", MIXED + ": first put H behind S again", "heads.token", 0.7),
    merge(
        "features-in-turn",
        "the heads' features were dealt in turn: head 0's should stand side by side, then head 1's",
        "x.permute(0, 2, 3, 1).flatten(-2)",
        SHAPING + "|stack",
    ),
    shown("features-order", "merge_heads", "the features are in another order", "heads.feature", 0.7),
    merge(
        "not-contiguous",
        "after a transpose the numbers do not lie as a view would read them: use reshape or flatten, or contiguous()",
        "x.transpose(1, 2).view(x.size(0), x.size(2), -1)",
        r"view",
    ),
    merge("heads-averaged", "the heads were averaged: they should stand side by side", "x.mean(1)", r"mean"),
    merge("heads-averaged", "the heads were added up: they should stand side by side", "x.sum(1)", r"sum"),
    merge(
        "heads-averaged",
        "the heads were added up, and the sum repeated: they should stand side by side",
        "x.sum(1).repeat(1, 1, x.size(1))",
        r"sum",
    ),
    split(
        "heads-lost",
        "each head lacks a feature: a slice from h·d ends before h·d + d, and not before the one ahead of it",
        VIEW + ".transpose(1, 2)[..., :-1]",
        r":",
    ),
    split("squeezed", SQUEEZED, SPLIT + ".squeeze()", r"squeeze"),
    merge("squeezed", SQUEEZED, MERGE + ".squeeze()", r"squeeze"),
    merge("heads-lost", "only one head is left: they should stand side by side", "x[:, 0]", r"\["),
    shown("heads-lost", "merge_heads", "numbers are lost, or changed", "heads.lost", 0.6),
    merge(
        "heads-as-tokens",
        "the heads came one after the other along the tokens: their features should stand side by side",
        "x.flatten(1, 2)",
        r"cat|view|reshape|flatten",
    ),
    merge("heads-left", "the heads are still a dimension of their own: (B, S, D) is wanted", "x.transpose(1, 2)"),
    merge(
        "heads-left",
        "the heads stand side by side, but a dimension of one is left where they were: (B, S, D) is wanted",
        "x.transpose(1, 2).flatten(-2)[:, None]",
        r"cat|chunk|split",
    ),
    merge(
        "heads-left",
        "the heads' features are run together, but the tokens came last",
        "x.transpose(2, 3).flatten(1, 2)",
    ),
    merge("heads-moved-wrong", "the wrong dimensions changed places", "x.transpose(1, 3).flatten(-2)"),
    merge("heads-moved-wrong", "the wrong dimensions changed places", "x.transpose(2, 3).flatten(-2)"),
    merge("heads-moved-wrong", "nothing changed places: H must stand beside d", "x.flatten(-2)"),
    merge(
        "heads-order",
        "the heads are in another order: head 0's features come first",
        "x.flip(1).transpose(1, 2).flatten(-2)",
    ),
    merge("batch-sequence-swapped", SWAPPED, "x.permute(2, 0, 1, 3).reshape(x.size(0), x.size(2), -1)"),
    merge("batch-sequence-swapped", SWAPPED, "x.transpose(0, 1).reshape(x.size(0), x.size(2), -1)"),
    merge("batch-sequence-swapped", "the sequence came first: the batch should", "x.permute(2, 0, 1, 3).flatten(-2)"),
    shown("batch-sequence-swapped", "merge_heads", SWAPPED, "heads.row", 0.75),
    merge("detached", DETACHED, "x.detach()" + MERGE[1:], CUT),
)
