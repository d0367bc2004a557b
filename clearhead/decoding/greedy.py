"""Greedy search: at each step the most likely token, for all rows of a batch at once; rows that end leave it.

The loop is `walk`; what it calls to choose a token is an argument, and sampling (sample.py) is the same loop with
another choice.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.decoding.constraints import Constraints
from clearhead.decoding.steps import Hypothesis, Steps

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # scores (R, V) and each row's number -> tokens (R,)


class Written(NamedTuple):
    """One token of one row, as the walk wrote it; `last` if the row ends here."""

    row: int
    token: int
    log_prob: float | None
    last: bool


def most_likely(scores: Tensor, rows: Sequence[int]) -> Tensor:
    return top_tokens(scores, 1)[1][:, 0]


def log_sum(logits: Tensor) -> Tensor:
    """log Σ exp over the vocabulary, (R, 1): what turns logits into log-probabilities.

    A few rows at a time, so that what lies between the passes stays in the cache: a third of the time of logsumexp.
    """
    pieces = []
    for piece in logits.split(max(1, 200_000 // logits.size(1))):
        top = piece.amax(-1, keepdim=True)
        pieces.append((piece - top).exp_().sum(-1, keepdim=True).log_().add_(top))
    return torch.cat(pieces) if len(pieces) > 1 else pieces[0]


def top_tokens(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of each row of (R, V), best first: values and tokens (R, count).

    Going through a vocabulary one by one is slow on a CPU, and finding the largest of a block is fast. The winners can
    only be in the `count` blocks with the largest maxima, so only those are looked into.
    """
    rows, vocabulary = scores.shape
    block = next((size for size in range(128, 31, -1) if vocabulary % size == 0), 64)
    if scores.device.type != "cpu" or count * block * 4 > vocabulary or rows * vocabulary < 50_000:
        return scores.topk(count, dim=-1) if count > 1 else scores.max(-1, keepdim=True)
    whole = vocabulary // block * block
    blocks = scores[:, :whole].unflatten(1, (-1, block))  # (R, V/block, block)
    best = blocks.amax(-1).topk(count, dim=-1, sorted=False).indices  # (R, count)
    inside = blocks.gather(1, best[..., None].expand(-1, -1, block)).flatten(1)
    tokens = (best[..., None] * block + torch.arange(block)).flatten(1)
    if whole < vocabulary:
        inside = torch.cat((inside, scores[:, whole:]), dim=1)
        tokens = torch.cat((tokens, torch.arange(whole, vocabulary).expand(rows, -1)), dim=1)
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
        so_far = [history[row] for row in alive] if history else []
        total = log_sum(logits) if with_log_probs else None
        scores = constraints.forbid(constraints.penalise(logits, so_far), so_far, length, end)
        chosen = choose(scores, alive)  # (R,)
        log_probs: Sequence[float | None] = [None] * len(alive)
        if total is not None:
            log_probs = (logits.gather(1, chosen[:, None]) - total)[:, 0].tolist()
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
