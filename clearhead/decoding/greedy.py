"""Greedy search: at each step the most likely token, for all rows of a batch at once; rows that end leave it.

The loop is `walk`; what it calls to choose a token is an argument, and sampling (sample.py) is the same loop with
another choice.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.decoding.abandon import check_wanted
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.steps import Hypothesis, Steps

FOLDS = 16
Choose = Callable[[Tensor, Sequence[int]], Tensor]  # scores (R, V) and each row's number -> tokens (R,)


class Written(NamedTuple):
    """One token of one row, as the walk wrote it; `last` if the row ends here."""

    row: int
    token: int
    log_prob: float | None
    last: bool


def most_likely(scores: Tensor, rows: Sequence[int]) -> Tensor:
    return top_tokens(scores, 1)[1][:, 0]


def top_tokens(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of each row of (R, V), best first: values and tokens (R, count).

    Going through a vocabulary one by one is slow on a CPU, and the largest of several rows, column by column, is fast.
    So a row of scores is folded into 16 shorter ones: the winners can only be in the `count` columns with the largest
    maxima, and only those are looked into.
    """
    rows, vocabulary = scores.shape
    width = vocabulary // FOLDS
    if scores.device.type != "cpu" or 4 * FOLDS * count > vocabulary or rows * vocabulary < 50_000:
        return scores.topk(count, dim=-1) if count > 1 else scores.max(-1, keepdim=True)
    folded = scores[:, : FOLDS * width].unflatten(1, (FOLDS, width))
    highest = folded.amax(1)  # (R, width)
    columns = highest.topk(count, dim=-1, sorted=False).indices if count > 1 else highest.max(-1, keepdim=True).indices
    inside = folded.gather(2, columns[:, None].expand(-1, FOLDS, -1)).flatten(1)  # (R, 16 · count)
    tokens = (columns[:, None] + width * torch.arange(FOLDS)[:, None]).flatten(1)
    if FOLDS * width < vocabulary:
        inside = torch.cat((inside, scores[:, FOLDS * width :]), dim=1)
        tokens = torch.cat((tokens, torch.arange(FOLDS * width, vocabulary).expand(rows, -1)), dim=1)
    values, index = inside.topk(count, dim=-1)
    return values, tokens.gather(1, index)


def walk(
    steps: Steps,
    logits: Tensor,  # (R, V), of each row's first token
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],  # the most tokens each row may write, the end token included
    end: int | None,
    constraints: Constraints,
    choose: Choose = most_likely,
    with_log_probs: bool = True,
) -> Iterator[list[Written]]:
    """Write token after token; yields what each step wrote, for the rows still there."""
    alive = list(range(steps.rows))
    history = {row: list(prompts[row]) for row in alive} if constraints.needs_history else {}
    length = 0
    while alive:
        check_wanted()
        so_far = [history[row] for row in alive] if history else []
        all_log_probs = logits.log_softmax(-1) if with_log_probs else None
        scores = constraints.forbid(constraints.penalise(logits, so_far), so_far, length, end)
        chosen = choose(scores, alive)  # (R,)
        log_probs: Sequence[float | None] = [None] * len(alive)
        if all_log_probs is not None:
            log_probs = all_log_probs.gather(1, chosen[:, None])[:, 0].tolist()
        length += 1
        step, stay = [], []
        for index, (row, token) in enumerate(zip(alive, chosen.tolist(), strict=True)):
            last = token == end or length >= limits[row]
            step.append(Written(row, token, log_probs[index], last))
            if history:
                history[row].append(token)
            if not last:
                stay.append(index)
        yield step
        if len(stay) < len(alive):
            alive = [alive[index] for index in stay]
            if not alive:
                return
            kept = torch.tensor(stay, device=chosen.device)
            steps.select(kept)
            chosen = chosen[kept]
        logits = steps.step(chosen)


def collect(walked: Iterator[list[Written]], rows: int, end: int | None) -> list[Hypothesis]:
    """What each row wrote, once all are done."""
    tokens: list[list[int]] = [[] for _ in range(rows)]
    log_probs: list[list[float]] = [[] for _ in range(rows)]
    finished = [False] * rows
    for step in walked:
        for written in step:
            if written.log_prob is not None:
                log_probs[written.row].append(written.log_prob)
            if written.token == end:
                finished[written.row] = True
            else:
                tokens[written.row].append(written.token)
    return [Hypothesis(tokens[row], log_probs[row], finished[row], sum(log_probs[row])) for row in range(rows)]


@torch.inference_mode()
def greedy(
    steps: Steps,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    end: int | None,
    constraints: Constraints | None = None,
    with_log_probs: bool = True,
) -> list[Hypothesis]:
    """The most likely token at each step, until the end token or the limit."""
    logits = steps.start(prompts)
    constraints = constraints or Constraints()
    walked = walk(steps, logits, prompts, limits, end, constraints, with_log_probs=with_log_probs)
    return collect(walked, len(prompts), end)
