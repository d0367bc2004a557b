"""Causes that lie in training: labels, averages, accumulation, clipping, schedule."""

from clearhead.doctor.causes import Facts, Known, Score
from clearhead.doctor.finding import Cause

LOSS = ("loss", "invariance", "floor")
ENDS = (
    "negative",
    "raised",
    "zero",
    "rises",
    "beyond",
    "unfinished",
    "level",
)  # what the decay probe finds late in a schedule


def loss(key: str, *values: str, score: float = 0.96) -> Score:
    """The loss fits a formula with one of these values."""

    def fits(facts: Facts) -> float:
        value = facts.of("loss.other", key, "")
        return score if any(wanted in value for wanted in values) else 0.0

    return fits


def found(id: str, score: float) -> Score:
    return lambda facts: score if facts.has(id) else 0.0


def leak(facts: Facts) -> float:
    if facts.of("loss.other", "reading") == "the source is the target":
        return 0.97
    if facts.of("loss.other", "reading") == "the model reads its labels":
        return 0.95
    if facts.has("floor.beaten") and facts.none("future.visible") and facts.of("loss.other", "pairing") is None:
        return 0.9
    return 0.6 if facts.has("invariance.source") and facts.none("reach.lost") else 0.0


def direction(*words: str) -> Score:
    return lambda facts: 0.95 if any(word in facts.of("update.direction", "reading", "") for word in words) else 0.0


def short(facts: Facts) -> float:
    if facts.of("update.length", "unclipped"):
        return 0.95
    if facts.of("update.length", "small") and facts.of("update.length", "ratio", 1.0) > 4:
        return 0.95  # still scaled when it was clipped
    return 0.95 if facts.has("update.length") and facts.of("update.length", "ratio", 1.0) < 0.5 else 0.0


def long(facts: Facts) -> float:
    if facts.of("update.length", "unclipped"):
        return 0.3
    if facts.has("update.length") and facts.of("update.length", "ratio", 1.0) > 1:
        return 0.9
    if 0.2 < facts.of("update.length", "ratio", 1.0) < 0.99:
        return 0.8  # divided more than once
    return 0.8 * direction("mean of the micro")(facts)


def unexplained(facts: Facts) -> float:
    alone = facts.none("future.visible", "batch.coupled", "mode.random")
    return 0.8 if facts.has("loss.unexplained") and alone else 0.1 if facts.has("loss.unexplained") else 0.0


def ignored(facts: Facts) -> float:
    if facts.has("invariance.ignored"):
        return 0.95
    padded = facts.among("invariance.changes", "case", "three more tokens of padding")
    clean = facts.none("padding.content", "padding.right", "future.visible", "batch.coupled", "loss.other")
    learned = padded and clean and not facts.of("invariance.changes", "counted")
    return max(loss("average", "token ")(facts), loss("average", "nothing ignored", score=0.9)(facts), 0.8 * learned)


def over_padding(facts: Facts) -> float:
    average = facts.of("loss.other", "average", "")
    if average.startswith("all positions") or average == "real tokens, nothing ignored":
        return 0.95
    more = facts.among("invariance.changes", "case", "three more tokens of padding")
    clean = facts.none("padding.content", "padding.right", "future.visible", "batch.coupled", "loss.other")
    return 0.7 if more and clean else 0.0


CAUSES: list[Known] = [
    (
        Cause(
            "labels-unshifted",
            "labels are not shifted",
            "cross_entropy(logits, tokens)",
            "cross_entropy(logits[:, :-1], tokens[:, 1:])",
            "The model learns to repeat its input, perfectly and uselessly.",
        ),
        lambda facts: max(
            loss("pairing", "labels not shifted")(facts),
            loss("reading", "the model reads its labels")(facts),
            found("invariance.labels", 0.9)(facts),
        ),
        LOSS,
    ),
    (
        Cause(
            "labels-shifted-twice",
            "labels are shifted twice",
            "model(x, labels=tokens[:, 1:])   # which shifts again",
            "model(x, labels=tokens)",
            "The model learns to predict the token after the next.",
        ),
        loss("pairing", "labels shifted twice"),
        LOSS,
    ),
    (
        Cause(
            "labels-rolled",
            "labels wrap around",
            "tokens.roll(-1, dims=1)",
            "tokens[:, 1:]",
            "The last position is asked for the first token.",
        ),
        loss("pairing", "labels rolled around"),
        LOSS,
    ),
    (
        Cause(
            "labels-backwards",
            "labels are shifted the wrong way",
            "cross_entropy(logits[:, 1:], tokens[:, :-1])",
            "cross_entropy(logits[:, :-1], tokens[:, 1:])",
            "The model is asked for what it has already read.",
        ),
        loss("pairing", "labels shifted backwards"),
        LOSS,
    ),
    (
        Cause(
            "loss-mispaired",
            "logits and labels are flattened in different orders",
            "logits.view(-1, V)   # (S, B, V), labels (B, S)",
            "logits.transpose(0, 1).reshape(-1, V)",
            "Each output is compared with some other token's label.",
        ),
        loss("pairing", "rows and positions swapped"),
        LOSS,
    ),
    (
        Cause(
            "softmax-twice",
            "a softmax runs before the cross-entropy",
            "cross_entropy(logits.softmax(-1), labels)",
            "cross_entropy(logits, labels)",
            "cross_entropy takes logits; probabilities through a second softmax are nearly flat and hardly train.",
        ),
        loss("pairing", "softmax taken twice"),
        LOSS,
    ),
    (
        Cause(
            "target-leak",
            "the target reaches the input",
            "model(source=target, target=target)",
            "model(source, target)",
            "Loss falls below what is possible; the answer was in the question.",
        ),
        leak,
        LOSS,
    ),
    (
        Cause(
            "mean-over-padding",
            "the mean counts padding",
            "losses.sum() / labels.numel()",
            "losses.sum() / (labels != PAD).sum()",
            "The loss shrinks with the amount of padding, so batches weigh differently.",
        ),
        over_padding,
        LOSS,
    ),
    (
        Cause(
            "smoothing-over-padding",
            "label smoothing counts ignored tokens",
            "eps * smooth.mean()",
            "eps * smooth[labels != PAD].mean()",
            "Padding is pushed towards the uniform distribution.",
        ),
        loss("smoothing", "over ignored tokens too"),
        LOSS,
    ),
    (
        Cause(
            "label-smoothing",
            "label smoothing is not what is declared",
            "(1 - eps) * nll",
            "(1 - eps) * nll + eps * smooth",
            "One of the two terms is missing, doubled or has another weight.",
        ),
        loss("smoothing", "none", "nothing spread", "added on top", "though none", "is spread", score=0.94),
        LOSS,
    ),
    (
        Cause(
            "ignored-token",
            "the wrong token is ignored",
            "ignore_index=1",
            "ignore_index=PAD",
            "Padding is learned, and a real token is not.",
        ),
        ignored,
        LOSS,
    ),
    (
        Cause(
            "loss-normaliser",
            "the loss is not a mean over tokens",
            'reduction="sum"',
            'reduction="mean"',
            "The size of the gradient then depends on the size of the batch.",
        ),
        loss("average", "no mean", "rows", "positions", "something else", score=0.93),
        LOSS,
    ),
    (
        Cause(
            "loss-padding",
            "the loss runs the model without its padding mask",
            "model(source, target)",
            "model(source, target, source != PAD)",
            "Training sees padding that evaluation hides.",
        ),
        loss("reading", "padding not hidden"),
        LOSS,
    ),
    (
        Cause(
            "loss-other",
            "the loss has a part the doctor does not know",
            "an extra term or weight",
            "loss= without it, for the doctor",
            "An auxiliary loss is fine; a mistake in the formula looks the same from outside.",
        ),
        unexplained,
        LOSS,
    ),
    (
        Cause(
            "accumulation-mean",
            "micro-batches weigh the same whatever their size",
            "(loss / n_micro).backward()",
            "(summed_loss / total_tokens).backward()",
            "Tokens of short micro-batches count more than others.",
        ),
        direction("mean of the micro"),
        ("update",),
    ),
    (
        Cause(
            "accumulation-lost",
            "only one micro-batch counts",
            "for b in batches: opt.zero_grad(); loss(b).backward()",
            "opt.zero_grad(); for b in batches: loss(b).backward()",
            "Gradients are cleared between micro-batches, or the step comes too early.",
        ),
        lambda facts: 0.95 if facts.of("update.length", "several") else direction("alone")(facts),
        ("update",),
    ),
    (
        Cause(
            "accumulation-scale",
            "accumulated gradients are not averaged",
            "loss.backward()   # n times",
            "(loss / n).backward()",
            "The step is as many times too long as there are micro-batches.",
        ),
        long,
        ("update",),
    ),
    (
        Cause(
            "clip-each",
            "each tensor is clipped on its own",
            "for p in params: clip_grad_norm_(p, 1.0)",
            "clip_grad_norm_(params, 1.0)",
            "A clip keeps the direction of the whole gradient; cut one by one, tensors with long gradients lose out.",
        ),
        direction("clipped by itself"),
        ("update",),
    ),
    (
        Cause(
            "clip-before-unscale",
            "gradients are clipped while still scaled, or before they are there",
            "clip_grad_norm_(...); scaler.unscale_(opt)",
            "scaler.unscale_(opt); clip_grad_norm_(...)",
            "A scaled gradient is thousands of times too long, so clipping leaves next to nothing.",
        ),
        short,
        ("update",),
    ),
    (
        Cause(
            "gradients-kept",
            "gradients of the last update are still there",
            "loss.backward(); opt.step()",
            "opt.zero_grad(); loss.backward(); opt.step()",
            "Every step repeats all steps before it.",
        ),
        found("update.kept", 0.95),
        ("update",),
    ),
    (
        Cause(
            "update-nothing",
            "the update changes nothing",
            "loss.backward()",
            "loss.backward(); opt.step()",
            "No step was taken, or with a learning rate of zero.",
        ),
        found("update.nothing", 0.95),
        ("update",),
    ),
    (
        Cause(
            "warmup-zero",
            "the first update has no learning rate",
            "lr = peak * step / warmup   # step from 0",
            "lr = peak * (step + 1) / warmup",
            "The first batch is wasted.",
        ),
        found("schedule.zero", 0.95),
        ("schedule",),
    ),
    (
        Cause(
            "schedule-peak",
            "the schedule does not peak where it should",
            "step ** 0.5",
            "min(step ** -0.5, step * warmup ** -1.5)",
            "The warm-up never ends, or ends too early.",
        ),
        lambda facts: max(found("schedule.peak", 0.95)(facts), found("schedule.power", 0.9)(facts)),
        ("schedule",),
    ),
    (
        Cause(
            "schedule-end",
            "the schedule is not made for its end",
            "peak * (1 - step / total)",
            "peak * max(0.0, 1 - step / total)",
            "Past the last planned update the rate turns negative, rises again or is no number.",
        ),
        lambda facts: max(found(f"decay.{what}", 0.9)(facts) for what in ENDS),
        ("decay", "schedule"),
    ),
    (
        Cause(
            "schedule-handover",
            "warm-up and decay do not meet",
            "peak * step / warmup, then base * step ** -0.5",
            "the same value at step = warmup from both sides",
            "The rate jumps where one formula hands over to the other.",
        ),
        found("decay.jump", 0.9),
        ("decay", "schedule"),
    ),
]
