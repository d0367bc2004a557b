"""A padding mask on the wrong axis: (B, S) read as (S, T), which fits without complaint when B = S.

Row b of the padding mask says which tokens of sequence b are real. Broadcast as (S, T) it says instead what query
number b may see, in every sequence alike. Nothing crashes. The task is to count, for each token of a list, how often
it occurs in the list, so a key that is wrongly hidden costs an answer, and one wrongly shown does too.
"""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.data.batch import Batch, generator
from clearhead.data.sequences import Counting
from clearhead.lab.drawing import dots, lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.training import brief, lists, small, train
from clearhead.model.attention import attention

ARMS = {
    "right": "(B, T) as (B, 1, 1, T): no query sees padding",
    "read as (S, T)": "the padding of sequence b hides keys from query b, in every sequence",
    "hides queries": "(B, T) as (B, 1, S, 1): padding sees nothing, but is seen by all",
    "no mask": "padding is seen like any token",
}


def read_as_square(q: Tensor, k: Tensor, v: Tensor, may_attend: Tensor | None = None, *rest: Any) -> Any:
    if may_attend is not None and may_attend.size(0) == q.size(2) == k.size(2):
        return attention(q, k, v, may_attend[:, 0, 0, :])  # (B, T), taken for (S, T)
    return attention(q, k, v, may_attend)


def hide_queries(q: Tensor, k: Tensor, v: Tensor, may_attend: Tensor | None = None, *rest: Any) -> Any:
    return attention(q, k, v, None if may_attend is None else may_attend.transpose(-1, -2))


def without_mask(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
    return attention(q, k, v)


ATTEND: dict[str, Any] = {
    "right": attention,
    "read as (S, T)": read_as_square,
    "hides queries": hide_queries,
    "no mask": without_mask,
}


class Squares(Counting):
    """The counting task in batches of as many lists as the longest has numbers, one of that length in each."""

    @classmethod
    def of(cls, data: Any) -> "Squares":
        return cls(data.texts, data.tokenizer, data.head["classes"] - 1)

    def plan(self, seed: int, epoch: int, max_tokens: int, block: int = 0) -> list[list[int]]:
        side = self.head["classes"] - 1
        order = generator(seed, epoch).permutation(len(self)).tolist()
        longest = [index for index in order if self.tokens.lengths[index] == side]
        others = [index for index in order if self.tokens.lengths[index] < side]
        count = min(len(longest), len(others) // (side - 1))
        return [[longest[i], *others[i * (side - 1) : (i + 1) * (side - 1)]] for i in range(count)]


@torch.no_grad()
def accuracy_of(model: Any, batches: Sequence[Batch]) -> float:
    right = total = 0
    for batch in batches:
        counted = batch.labels >= 0
        answers = model(**batch.inputs).argmax(-1)
        right += int(((answers == batch.labels) & counted).sum())
        total += int(counted.sum())
    return right / total


@torch.no_grad()
def neighbours(model: Any, batch: Batch) -> float:
    """How far the first list's logits move (RMS) when the order of the other lists changes: it should be 0."""
    order = torch.tensor([0, *range(len(batch.labels) - 1, 0, -1)])
    turned = {name: value[order] for name, value in batch.inputs.items()}
    return float((model(**batch.inputs)[0] - model(**turned)[0]).square().mean().sqrt())


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    side = sizes["side"]
    data = lists("count", symbols=6, longest=side, examples=sizes["examples"])
    train_data, validation = Squares.of(data.train), Squares.of(data.validation)
    config = small(data.tokenizer.size, kind="encoder", head=train_data.head)
    trained = train(config, train_data, brief(sizes["steps"], seed, peak=2e-3), attend=ATTEND[arm])
    model = trained.model.eval()
    together = [validation.collate(indices) for indices in validation.plan(0, 0, 0)]
    alone = [validation.collate([index]) for index in range(sizes["alone"])]
    middle = sorted(trained.norms)[len(trained.norms) // 2]
    return {
        "loss": trained.scores(validation)["loss"],
        "accuracy": accuracy_of(model, together),
        "alone": accuracy_of(model, alone),
        "neighbours": neighbours(model, together[0]),
        "norm": middle,
        "spikes": max(trained.norms[len(trained.norms) // 5 :]) / middle,
        "first_loss": trained.losses[0],
        "course": trained.smoothed(sizes["points"]),
    }


WRONG = "read as (S, T)"


def quiet(results: Results) -> Verdict:
    first, last = results.mean(WRONG, "first_loss"), results.mean(WRONG, "loss")
    sentence = (
        f"nothing crashes, and the loss falls from {first:.2f} to {last:.2f} nats as if nothing were wrong (right: "
        f"{results.mean('right', 'loss'):.2f})"
    )
    return Verdict("holds" if last < 0.5 * first else "does not hold here", sentence)


def damages(results: Results) -> Verdict:
    lost = results.difference("right", WRONG, "accuracy")
    sentence = (
        f"accuracy is {results.interval(WRONG, 'accuracy')} in batches like those of training and "
        f"{results.interval(WRONG, 'alone')} one list at a time (right: {results.interval('right', 'accuracy')} and "
        f"{results.interval('right', 'alone')}), and a list's logits move by {results.interval(WRONG, 'neighbours')} "
        "with its neighbours in the batch"
    )
    if lost.low > 0:
        return Verdict("holds", sentence)
    return Verdict("does not hold here" if lost.high < 0 else "cannot tell at this size", sentence)


def unnoticed(results: Results) -> Verdict:
    arms = ("no mask", "hides queries")
    gaps = {arm: results.difference("right", arm, "accuracy") for arm in arms}
    alone = {arm: results.difference("right", arm, "alone") for arm in arms}
    sentence = "; ".join(
        f"{arm}: {results.mean(arm, 'accuracy'):.3f} in the batch, {results.mean(arm, 'alone'):.3f} alone"
        for arm in arms
    )
    sentence += f" (right: {results.mean('right', 'accuracy'):.3f} and {results.mean('right', 'alone'):.3f})"
    if all(gap.low <= 0 for gap in gaps.values()) and all(gap.low > 0 for gap in alone.values()):
        return Verdict("holds", f"it learned to count the padding: {sentence}")
    return Verdict("does not hold here", sentence)


def spikes(results: Results) -> Verdict:
    gap = results.difference(WRONG, "right", "spikes")
    sentence = (
        f"the largest gradient after the first fifth of training is {results.interval(WRONG, 'spikes')} times the "
        f"median one, in the right model {results.interval('right', 'spikes')} times"
    )
    return Verdict("holds" if gap.low > 0 else "does not hold here", sentence)


def headline(results: Results) -> str:
    batch, alone = (results.mean("no mask", name) for name in ("accuracy", "alone"))
    return (
        f"Validation in batches like those of training shows least where the damage is greatest: without any mask "
        f"{batch:.3f} of the answers are right there, and {alone:.3f} when a list comes alone."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(4)
    points = results.sizes["points"]
    steps = [results.sizes["steps"] / points * (number + 1) for number in range(points)]
    courses = results.curves(ARMS, "course")
    lines(axes[0], steps, courses, "update", "training loss (nats per token)", "Every loss falls", "y")
    for panel, name, title in (
        (axes[1], "accuracy", "What is lost, in batches like those of training"),
        (axes[2], "alone", "What is lost, one list at a time: no padding"),
    ):
        right = results.intervals(ARMS, name)
        dots(panel, right, "share of right answers, validation", title)
    moved = results.intervals(ARMS, "neighbours")
    dots(axes[3], moved, "change of the logits (root mean square)", "Other lists of the batch change places")
    return drawn


EXPERIMENT = Experiment(
    number=3,
    name="mask-broadcast",
    claim="A mask that broadcasts the wrong way does not crash: it quietly damages training, and makes gradients "
    "unstable.",
    parts=(
        Part(
            "A mask that broadcasts the wrong way does not show in the loss.",
            "Read as (S, T), the validation loss ends below half of its first one: holds; otherwise it does not.",
            quiet,
        ),
        Part(
            "It damages the model.",
            "The 95% interval of right minus wrong accuracy lies above zero: holds; below: does not hold here; "
            "otherwise it cannot be told.",
            damages,
        ),
        Part(
            "Padding that is seen goes unnoticed as long as validation is padded too.",
            "Without a mask, and with one that hides queries: accuracy in the batch is not measurably below the right "
            "model's, and accuracy one list at a time is, with its whole interval: holds; otherwise it does not.",
            unnoticed,
        ),
        Part(
            "It makes gradients unstable.",
            "The interval of wrong minus right largest gradient lies above zero: holds; otherwise it does not.",
            spikes,
        ),
    ),
    arms=ARMS,
    measured="An encoder that counts, in batches of as many lists as a list has places: validation loss and accuracy, "
    "accuracy on lists alone, how far a list's logits depend on its neighbours, and the norms of the gradient (their "
    "median, and the largest after the first fifth of training over the median).",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "side": 12, "examples": 10_000, "steps": 400, "alone": 100, "points": 10},
    full={"seeds": 5, "side": 16, "examples": 50_000, "steps": 3000, "alone": 500, "points": 25},
    columns={
        "loss": "validation loss (nats)",
        "accuracy": "accuracy",
        "alone": "accuracy, one list at a time",
        "neighbours": "dependence on neighbours (logits, RMS)",
        "norm": "gradient norm, median",
        "spikes": "largest gradient / median",
    },
)
