"""Validation: the loss on text the model was not trained on, without smoothing and without dropout.

Smoothing makes the training loss a number that cannot reach zero; the one reported here is the plain negative
log-likelihood per token, whose exponential is the perplexity. The lowest one so far decides which checkpoint is `best`,
and how long ago that was decides when patience runs out.
"""

import torch

from clearhead.data.batch import Dataset
from clearhead.errors import InputError
from clearhead.model import DecoderOnly
from clearhead.training.distributed import Ranks
from clearhead.training.loop import Loop, Objective


class Validation:
    """Callback: validates every so many updates, and after the last one."""

    def __init__(self, data: Dataset, max_tokens: int) -> None:
        self.data = data
        self.batches = data.plan(0, 0, max_tokens)  # now, so that an example too long for a batch is found at the start
        if not any(data.collate(batch).count for batch in self.batches):
            raise InputError(nothing_in(data))

    def __call__(self, loop: Loop) -> None:
        settings, progress = loop.settings, loop.progress
        if not settings.validates(progress.step):
            return
        scores = loop.update.validation = evaluate(loop.objective, self.data, self.batches, loop.ranks)
        if progress.best is None or scores["loss"] < progress.best:
            progress.best, progress.best_step, progress.stale = scores["loss"], progress.step, 0
        else:
            progress.stale += 1
            if settings.patience is not None and progress.stale >= settings.patience:
                loop.stop = f"no better validation loss for {progress.stale} validations"


def nothing_in(data: Dataset) -> str:
    return f"there is nothing to predict in any of {len(data):,} examples, of which the first is {data.name(0)}"


@torch.no_grad()
def evaluate(objective: Objective, data: Dataset, batches: list[list[int]], ranks: Ranks) -> dict[str, float]:
    """The loss per token; where there are answers to be right or wrong, also the share of tokens that are the first
    choice after the true ones before them (`token_accuracy`), and of whole sequences of such tokens (`exact`). Greedy
    search writes exactly these sequences: `exact` is the score of real decoding, without its cost."""
    objective.eval()
    answers = not isinstance(objective.model, DecoderOnly)
    sums = torch.zeros(3, dtype=torch.float64)  # loss, right tokens, right sequences
    count = rows = 0
    turns = -(-len(batches) // ranks.count)  # as many for each rank: FSDP gathers the weights together in each
    for turn in range(turns):
        number = turn * ranks.count + ranks.rank
        batch = data.collate(batches[min(number, len(batches) - 1)]).to(ranks.device)
        found = objective(batch, answers).double().cpu()
        if number < len(batches):
            sums += found if answers else found * torch.tensor([1.0, 0.0, 0.0])
            count, rows = count + batch.count, rows + len(batch.labels)
    loss, right, exact, tokens, sequences = ranks.sum(*sums.tolist(), count, rows)
    if not tokens:
        raise InputError(nothing_in(data))
    scores = {"loss": loss / tokens}
    if answers:
        scores |= {"token_accuracy": right / tokens, "exact": exact / sequences}
    return scores
