"""Validation: the loss on text the model was not trained on, without smoothing and without dropout.

Smoothing makes the training loss a number that cannot reach zero; the one reported here is the plain negative
log-likelihood per token, whose exponential is the perplexity. The lowest one so far decides which checkpoint is `best`,
and how long ago that was decides when patience runs out; or instead of the loss the measure that the settings name.
BLEU and chrF need real decoding, which is not a part of training: they come from whoever starts it, as a `judge`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice

import numpy as np
import torch

from clearhead.data.batch import Dataset
from clearhead.data.labelled import Labelled, macro_f1
from clearhead.errors import InputError
from clearhead.model import DecoderOnly, Transformer
from clearhead.training.distributed import Ranks
from clearhead.training.loop import Loop, Objective

Judge = Callable[[Transformer], dict[str, float]]  # scores of what the model writes by itself
DECODED = ("BLEU", "chrF")


class Validation:
    """Callback: validates every so many updates, and after the last one."""

    def __init__(
        self,
        data: Dataset,
        max_tokens: int,
        measure: str = "loss",
        judge: Judge | None = None,
        more: Mapping[str, Dataset] | None = None,  # further sets by name, which are measured but decide nothing
    ) -> None:
        self.data, self.measure, self.more, self.max_tokens = data, measure, more or {}, max_tokens
        self.judge = judge if measure in DECODED else None  # the others are known without its cost
        possible = measures(data)
        if measure not in possible or (measure in DECODED and judge is None):
            left = [name for name in possible if name not in DECODED or judge is not None]
            raise InputError(f"training.measure = {measure!r} is none that these data have: {', '.join(left)}")
        for one in (data, *self.more.values()):  # now, so that an example too long for a batch is found at the start
            if not any(one.collate(batch).count for batch in all_batches(one, max_tokens)):
                raise InputError(nothing_in(one))

    def __call__(self, loop: Loop) -> None:
        settings, progress = loop.settings, loop.progress
        if not settings.validates(progress.step):
            return
        scores = loop.update.validation = self.scores(loop.objective, loop.ranks)
        if progress.best is None or better(scores, self.measure, progress.best):
            progress.best, progress.best_step, progress.stale = scores[self.measure], progress.step, 0
        else:
            progress.stale += 1
            if settings.patience is not None and progress.stale >= settings.patience:
                loop.stop = f"no better validation {self.measure} for {progress.stale} validations"

    def scores(self, objective: Objective, ranks: Ranks) -> dict[str, float]:
        scores = evaluate(objective, self.data, all_batches(self.data, self.max_tokens), ranks)
        for name, data in self.more.items():
            found = evaluate(objective, data, all_batches(data, self.max_tokens), ranks)
            scores |= {f"{measure} {name}": value for measure, value in found.items()}
        if self.judge is not None:  # on each rank, as each has the whole model and the same data
            scores |= self.judge(objective.model)
        return scores


def better(scores: Mapping[str, float], measure: str, than: float) -> bool:
    return scores[measure] < than if measure == "loss" else scores[measure] > than


def measures(data: Dataset) -> tuple[str, ...]:
    """What a model of these data can be judged by."""
    if isinstance(data, Labelled):
        return "loss", "accuracy", "macro_F1"
    if data.kind == "decoder":
        return ("loss",)
    return ("loss", "exact", *(DECODED if data.kind == "encoder-decoder" else ()))


def nothing_in(data: Dataset) -> str:
    return f"there is nothing to predict in any of {len(data):,} examples, of which the first is {data.name(0)}"


def all_batches(data: Dataset, max_tokens: int) -> Iterator[list[int]]:
    """The batches of held-out data, always the same."""
    return chain.from_iterable(data.plan(0, 0, max_tokens, block) for block in range(data.blocks))


@torch.no_grad()
def evaluate(objective: Objective, data: Dataset, batches: Iterable[list[int]], ranks: Ranks) -> dict[str, float]:
    """The loss per token; where there are answers to be right or wrong, also the share of tokens that are the first
    choice after the true ones before them (`token_accuracy`), and of whole sequences of such tokens (`exact`). Greedy
    search writes exactly these sequences: `exact` is the score of real decoding, without its cost."""
    objective.eval()
    answers = not isinstance(objective.model, DecoderOnly)
    labelled = isinstance(data, Labelled)
    size = 1 + 3 * len(data.labels) if isinstance(data, Labelled) else 3
    sums = torch.zeros(size, dtype=torch.float64)  # loss, right tokens, right sequences; or what labels count by
    count = rows = 0
    left = iter(batches)
    while turn := list(islice(left, ranks.count)):  # as many for each rank: FSDP gathers the weights together in each
        batch = data.collate(turn[min(ranks.rank, len(turn) - 1)]).to(ranks.device)
        found = objective(batch, answers).double().cpu()
        if ranks.rank < len(turn):
            sums += found if answers else found * torch.tensor([1.0, 0.0, 0.0])
            count, rows = count + batch.count, rows + len(batch.labels)
    *found, tokens, sequences = ranks.sum(*sums.tolist(), count, rows)
    loss, right, exact = found[:3]
    if not tokens:
        raise InputError(nothing_in(data))
    scores = {"loss": loss / tokens}
    if labelled:
        hits, predicted, wanted = np.array(found[1:]).reshape(3, -1)
        scores |= {"accuracy": float(hits.sum()) / tokens, "macro_F1": macro_f1(hits, predicted, wanted)}
    elif answers:
        scores |= {"token_accuracy": right / tokens, "exact": exact / sequences}
    return scores
