"""Validation: the loss on text the model was not trained on, without smoothing and without dropout.

Smoothing makes the training loss a number that cannot reach zero; the one reported here is the plain negative
log-likelihood per token, whose exponential is the perplexity. The lowest one so far decides which checkpoint is `best`,
and how long ago that was decides when patience runs out.
"""

import torch

from clearhead.data.batch import IGNORE, Dataset
from clearhead.model import EncoderOnly
from clearhead.training.loop import Loop


class Validation:
    """Callback: validates every so many updates, and after the last one."""

    def __init__(self, data: Dataset, max_tokens: int) -> None:
        self.data = data
        self.batches = data.plan(0, 0, max_tokens)  # now, so that an example too long for a batch is found at the start

    def __call__(self, loop: Loop) -> None:
        settings, progress = loop.settings, loop.progress
        if progress.step % settings.validate_every and progress.step != settings.steps:
            return
        scores = loop.update.validation = evaluate(loop, self.data, self.batches)
        if progress.best is None or scores["loss"] < progress.best:
            progress.best, progress.best_step, progress.stale = scores["loss"], progress.step, 0
        else:
            progress.stale += 1
            if settings.patience is not None and progress.stale >= settings.patience:
                loop.stop = f"no better validation loss for {progress.stale} validations"


@torch.no_grad()
def evaluate(loop: Loop, data: Dataset, batches: list[list[int]]) -> dict[str, float]:
    """The loss per token; where each token gets a class of its own, also the share of them that is right."""
    loop.wrapped.eval()
    ranks, classes = loop.ranks, isinstance(loop.model, EncoderOnly)
    total = right = count = 0.0
    turns = -(-len(batches) // ranks.count)  # as many for each rank: FSDP gathers the weights together in each
    for turn in range(turns):
        number = turn * ranks.count + ranks.rank
        batch = data.collate(batches[min(number, len(batches) - 1)]).to(ranks.device)
        loss = float(loop.objective(batch))
        hits = 0.0
        if classes:
            with loop.objective.autocast(ranks.device.type):
                guesses = loop.model(**batch.inputs).argmax(-1)
            hits = float(((guesses == batch.labels) & (batch.labels != IGNORE)).sum())
        if number < len(batches):
            total, right, count = total + loss, right + hits, count + batch.count
    total, right, count = ranks.sum(total, right, count)
    return {"loss": total / count, **({"accuracy": right / count} if classes else {})}
