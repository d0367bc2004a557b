"""Causes that lie in a mask: built wrong, turned around, applied too late, lost on the way."""

from clearhead.doctor.causes import Facts, Known
from clearhead.doctor.finding import Cause

LEAK = ("future", "prefix", "cache", "length", "floor", "loss", "invariance")
PADS = ("padding", "invariance", "batch")


def leak(facts: Facts) -> bool:
    return facts.has("future.visible")


def through_scores(facts: Facts) -> bool:
    """Does the future come in through the scores (and not through a norm or a reshape)?"""
    return leak(facts) and facts.scores("standing") is not False and facts.none("batch.coupled")


def masks(facts: Facts, kind: str) -> str:
    """What was seen of the masks over padded tokens: of the tokens' own attention, or of the target's over them."""
    found = facts.of("padding.content", "masks") or facts.of("padding.right", "masks") or {}
    return found.get(kind, "")


def one_path(facts: Facts) -> float:
    if facts.of("future.visible", "clean_modes"):
        return 0.97
    if facts.has("padded.training") or facts.has("padded.path"):
        return 0.96
    return 0.6 if facts.has("paths.differ") else 0.0


def diagonal(facts: Facts) -> float:
    if leak(facts) and facts.of("future.visible", "depth_one_positions") == [0]:
        return 0.95  # with nothing left to look at, the first token looks at everything
    offsets = facts.of("future.visible", "depth_one_offsets") or facts.of("future.visible", "offsets")
    if leak(facts) and offsets == [1]:
        return 0.95
    if facts.has("attention.blind"):
        return 0.96
    return 0.0


def inverted(facts: Facts) -> float:
    if "inverted" in (masks(facts, "self"), masks(facts, "cross")):
        return 0.97
    if leak(facts) and facts.has("reach.lost"):
        return 0.9 if facts.of("reach.lost", "share", 0) > 0.7 else 0.4
    return 0.0


def missing(facts: Facts) -> float:
    if not through_scores(facts) or facts.of("future.visible", "clean_modes"):
        return 0.0
    step, offsets = facts.scores("step"), facts.of("future.visible", "offsets", [])
    if facts.scores("constant") or len(offsets) <= 1:
        return 0.3
    if step is not None:
        return 0.9 if abs(step) < 1e-4 else 0.5
    return 0.8


def value(facts: Facts) -> float:
    if not through_scores(facts):
        return 0.0
    step = facts.scores("step")
    if facts.scores("constant"):
        return 0.93
    return 0.92 if step is not None and 1e-4 < abs(step) < 100 else 0.2


def after(facts: Facts) -> float:
    if facts.has("attention.unnormalised") and facts.of("attention.unnormalised", "after"):
        return 0.96 if facts.none("mode.random") else 0.3
    if facts.of("padding.content", "after_softmax"):
        return 0.9
    small = facts.of("future.visible", "relative", 1.0) < 0.05
    return 0.6 if leak(facts) and small else 0.1 if leak(facts) else 0.0


def replaced(facts: Facts) -> float:
    if facts.has("padded.future"):
        return 0.97 if facts.none("batch.coupled", "mode.random") else 0.2
    return 0.95 if facts.of("packed.differs", "ahead") and not leak(facts) else 0.0


def padding(facts: Facts) -> float:
    if facts.has("padding.unused"):
        return 0.97
    if "inverted" in (masks(facts, "self"), masks(facts, "cross")) or masks(facts, "self") == "queries":
        return 0.3
    if facts.has("padding.content"):
        return 0.5 if leak(facts) or facts.has("batch.coupled") else 0.85
    return 0.3 if facts.has("padding.right") else 0.0


def padding_axis(facts: Facts) -> float:
    if masks(facts, "self") == "queries":
        return 0.97
    return 0.7 if facts.has("padding.content") and not leak(facts) and facts.none("batch.coupled") else 0.0


def broadcast(facts: Facts) -> float:
    if "rows" in (masks(facts, "self"), masks(facts, "cross")):
        return 0.96
    if facts.of("padding.right", "coupled") and facts.none("batch.coupled"):
        return 0.85
    moved = facts.of("padding.content", "moved", [])
    if facts.has("padding.content") and moved == ["square content"]:
        return 0.95
    if facts.has("batch.coupled") and "distinct" not in facts.of("batch.coupled", "shapes", []):
        return 0.9
    return 0.6 if facts.has("padding.content") and not leak(facts) and facts.none("batch.coupled") else 0.0


def of_source(facts: Facts) -> bool:
    ids = ("padding.content", "padding.unused", "padding.right")
    hit = any(facts.among(id, "view", "source") for id in ids)
    return hit and not leak(facts) and facts.none("batch.coupled")


def cross_padding(facts: Facts) -> float:
    if not of_source(facts) or masks(facts, "cross") in ("closed", "inverted"):
        return 0.0
    return 0.97 if masks(facts, "self") == "closed" else 0.9


def encoder_padding(facts: Facts) -> float:
    if not of_source(facts) or masks(facts, "self") in ("closed", "inverted"):
        return 0.0
    return 0.97 if masks(facts, "cross") == "closed" else 0.85


def masked_row(facts: Facts) -> float:
    return (0.9 if facts.none("batch.coupled") else 0.3) if facts.has("finite.padding") else 0.0


def overflow(facts: Facts) -> float:
    wide = facts.among("finite.padding", "dtype", "torch.float64", "torch.float32")
    if facts.has("batch.coupled") or not facts.has("finite.padding"):
        return 0.3 * facts.has("finite.padding")
    return 0.6 if wide else 0.95


def window_edge(facts: Facts) -> float:
    if facts.has("reach.beyond"):
        return 0.95 if facts.of("reach.beyond", "extra") == 1 and not leak(facts) else 0.3
    if facts.has("cache.differs") and facts.of("cache.differs", "window") and not leak(facts):
        looked = facts.of("cache.differs", "looked") or {}
        more = looked.get("more", 0) if {"fewer", "more"} & {looked.get("keys"), looked.get("values")} else None
        if not looked.get("query", True):
            return 0.1
        return 0.6 if not looked else 0.95 if more in (1, -1) else 0.6 if more else 0.2
    return 0.0


def window_ignored(facts: Facts) -> float:
    if not facts.has("reach.beyond") or leak(facts) or facts.has("batch.coupled"):
        return 0.2 * facts.has("reach.beyond")  # whatever shows the future shows what is far away, too
    return 0.95 if facts.of("reach.beyond", "extra", 0) > 1 else 0.4


def documents(facts: Facts) -> float:
    if facts.of("packed.differs", "ahead"):
        return 0.3
    if facts.has("packed.differs") and not facts.of("packed.differs", "visible", True):
        return 0.6 if facts.only("packed.differs") else 0.1  # it is the places, not the tokens, that others change
    return 0.95 if facts.has("packed.differs") and facts.only("packed.differs") else 0.2 * facts.has("packed.differs")


def direction(facts: Facts) -> float:
    if facts.of("cross.encoder", "causal"):
        return 0.97
    return 0.95 if facts.has("reach.lost") and facts.of("reach.lost", "only_ahead") else 0.0


CAUSES: list[Known] = [
    (
        Cause(
            "mask-diagonal",
            "the causal mask's diagonal is off by one",
            "torch.ones(S, S).tril(diagonal=1)",
            "torch.ones(S, S, dtype=torch.bool).tril()",
            "Each layer lets one token of the future through (or hides the token itself); two layers let two through.",
        ),
        diagonal,
        (*LEAK, "attention"),
    ),
    (
        Cause(
            "mask-missing",
            "the causal mask is never applied",
            "scores.softmax(-1)",
            "scores.masked_fill(~may_attend, -math.inf).softmax(-1)",
            "Training looks wonderful, since every answer is in the input; generation is nonsense.",
        ),
        missing,
        LEAK,
    ),
    (
        Cause(
            "mask-inverted",
            "the mask has the wrong polarity",
            "scaled_dot_product_attention(q, k, v, attn_mask=is_future)",
            "scaled_dot_product_attention(q, k, v, attn_mask=~is_future)",
            "In one API True means 'hide', in the next 'may look': the past disappears and the future shows.",
        ),
        inverted,
        (*LEAK, "reach", "position", "padding"),
    ),
    (
        Cause(
            "mask-value",
            "the mask adds or fills a number that hides nothing",
            "scores + mask.float()   # 0 and 1",
            "scores.masked_fill(~mask, -math.inf)",
            "A masked score must become so negative that its weight is zero; 0, 1 or 1e-9 leave it standing.",
        ),
        value,
        LEAK,
    ),
    (
        Cause(
            "mask-after-softmax",
            "the mask is applied after the softmax",
            "scores.softmax(-1) * mask",
            "scores.masked_fill(~mask, -math.inf).softmax(-1)",
            "What is hidden still stands in the denominator, so it still moves the result, and rows no longer sum to "
            "one.",
        ),
        after,
        (*LEAK, *PADS, "attention", "position"),
    ),
    (
        Cause(
            "mask-one-path",
            "one path through the code loses the mask",
            "if self.training: return attend(q, k, v)",
            "if self.training: return attend(q, k, v, mask)",
            "A second kernel, a flag or the training branch was given everything but the mask.",
        ),
        one_path,
        (*LEAK, "paths", "mode", "padded"),
    ),
    (
        Cause(
            "mask-replaced",
            "the padding mask replaces the causal mask",
            "mask = causal if padding is None else padding",
            "mask = causal & padding",
            "As soon as a batch is padded, every token sees its future.",
        ),
        replaced,
        (*PADS, "padded", "packed"),
    ),
    (
        Cause(
            "mask-swapped",
            "the masks of source and target are swapped",
            "self.decoder(target, memory, target_mask, target_mask)",
            "self.decoder(target, memory, source_mask, target_mask)",
            "Where both sides have the same length nothing raises, and padding of the source is read.",
        ),
        lambda facts: 0.97 if facts.has("padded.swapped") else 0.0,
        (*PADS, "padded"),
    ),
    (
        Cause(
            "padding-ignored",
            "the padding mask is not applied",
            "def forward(self, x, padding=None): return self.layers(x)",
            "scores.masked_fill(~padding[:, None, None, :], -math.inf)",
            "A sentence's result then depends on how long its neighbours in the batch are.",
        ),
        padding,
        PADS,
    ),
    (
        Cause(
            "padding-axis",
            "the padding mask hides queries instead of keys",
            "mask & padding[:, None, :, None]",
            "mask & padding[:, None, None, :]",
            "Padding must not be looked at; whether it looks itself does not matter.",
        ),
        padding_axis,
        PADS,
    ),
    (
        Cause(
            "mask-broadcast",
            "a mask lines up with the wrong axis",
            "padding.repeat(heads, 1)",
            "padding.repeat_interleave(heads, dim=0)",
            "Shapes agree, so nothing fails: rows get each other's masks, or only when two sizes happen to be equal.",
        ),
        broadcast,
        PADS,
    ),
    (
        Cause(
            "cross-padding-missing",
            "cross-attention ignores the source's padding",
            "self.cross(x, memory, memory)",
            "self.cross(x, memory, memory, mask=source_padding)",
            "The encoder hid its padding, but its outputs there are numbers like any other, and the decoder mixes "
            "them in.",
        ),
        cross_padding,
        PADS,
    ),
    (
        Cause(
            "encoder-padding-missing",
            "the encoder ignores the source's padding",
            "self.encoder(source)",
            "self.encoder(source, padding=source != PAD)",
            "Real source tokens mix padding into themselves.",
        ),
        encoder_padding,
        PADS,
    ),
    (
        Cause(
            "masked-row-nan",
            "a query that may look at nothing gives 0/0",
            "scores.masked_fill(~mask, -math.inf).softmax(-1)",
            "weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)   # with a finite fill before the softmax",
            "A row of padding becomes NaN, and through shared weights so do all gradients of the batch.",
        ),
        masked_row,
        ("finite", "padding"),
    ),
    (
        Cause(
            "mask-overflow",
            "mask values overflow the dtype",
            "scores + causal + padding   # finfo.min + finfo.min = -inf",
            "combine boolean masks first, then fill once with torch.finfo(scores.dtype).min",
            "-1e9 is -inf in float16, and two most negative numbers are -inf in any dtype; a row of them is NaN.",
        ),
        overflow,
        ("finite",),
    ),
    (
        Cause(
            "window-edge",
            "the window is off by one",
            "distance <= window",
            "distance < window   # itself included",
            "One backend, or the cache, keeps one token more or less than the mask says.",
        ),
        window_edge,
        ("reach", "cache", "generate"),
    ),
    (
        Cause(
            "window-ignored",
            "the window never reaches the mask",
            "causal_mask(S)",
            "causal_mask(S, window)",
            "The configuration has a window, the kernel does not.",
        ),
        window_ignored,
        ("reach", "cache", "generate"),
    ),
    (
        Cause(
            "documents-visible",
            "packed documents see each other",
            "mask = causal(S)",
            "mask = causal(S) & (documents[:, :, None] == documents[:, None, :])",
            "Attention runs across the boundary of two texts; or positions do not start anew with each.",
        ),
        documents,
        ("packed",),
    ),
    (
        Cause(
            "direction",
            "the encoder looks in one direction only",
            "self.encoder(x, is_causal=True)",
            "self.encoder(x)",
            "An encoder should see both sides of every token.",
        ),
        direction,
        (
            "cross",
            "reach",
        ),
    ),
]
