"""Greedy search: at each step the most likely token, for all rows of a batch at once; rows that end leave it.

The loop is `walk`; what it calls to choose a token is an argument, and sampling (sample.py) is the same loop with
another choice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.decoding.constraints import Constraints
from clearhead.decoding.steps import Hypothesis, Steps

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # scores (R, V) and each row's number -> tokens (R,)


@dataclass(frozen=True)
class Written:
    """One token of one row, as the walk wrote it; `last` if the row ends here."""

    row: int
    token: int
    log_prob: float | None
    last: bool


def most_likely(scores: Tensor, rows: Sequence[int]) -> Tensor:
    return scores.argmax(-1)


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
        so_far = [history[row] for row in alive] if history else []
        scores = constraints.forbid(constraints.penalise(logits, so_far), so_far, length, end)
        chosen = choose(scores, alive)  # (R,)
        log_probs: Sequence[float | None] = [None] * len(alive)
        if with_log_probs:
            log_probs = (logits.gather(1, chosen[:, None])[:, 0] - logits.logsumexp(-1)).tolist()
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
