"""A batch of continuations that texts join and leave between steps, each with settings and chance of its own.

What a text becomes does not depend on who else is in the batch: it draws from its own generator, made of its seed and
its number exactly as in `sample.py`, so that the words are those of `LoadedModel.generate`. Log-probabilities agree to
rounding, not to the bit: a product of 32 rows adds up in another order than one of a single row.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.decoding.constraints import Constraints
from clearhead.decoding.join import join
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.sample import Sampling, drawn
from clearhead.decoding.steps import Steps


@dataclass(eq=False)
class Row:
    """One text being continued."""

    prompt: list[int]
    sampling: Sampling
    limit: int  # the most tokens to write, the end token included
    number: int = 0  # which of several samples of one prompt
    likeliest: int = 0  # how many of the likeliest tokens are told besides the one written
    written: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.sampling.seed}/{self.number}")


class Next(NamedTuple):
    """The token that a step wrote in one row. Log-probabilities are the model's own, before any setting."""

    row: Row
    token: int
    log_prob: float
    likeliest: list[tuple[int, float]]  # other tokens and theirs, best first
    ended: bool  # the token is the end mark
    last: bool


class RollingBatch:
    """Rows under way. `step` advances all by a token; whoever is `last` has left."""

    def __init__(self, loaded: LoadedModel) -> None:
        loaded.model_of_kind("decoder", "generate")
        self.loaded, self.end = loaded, loaded._end
        self.constraints: Constraints = loaded._sampling(loaded.settings, 0)[1]
        self.rows: list[Row] = []
        self.steps: Steps | None = None
        self.chosen = torch.empty(0, dtype=torch.long)  # (R,) what each row wrote last

    def step(self, newcomers: Sequence[Row] = (), leaving: Sequence[Row] = ()) -> list[Next]:
        """Let rows go and others in, then write one token in each."""
        with self.loaded._threads(), torch.inference_mode():
            self._keep([index for index, row in enumerate(self.rows) if row not in leaving])
            logits = [self.steps.step(self.chosen)] if self.steps is not None else []
            if newcomers:
                fresh = self.loaded._steps()
                logits.append(fresh.start([row.prompt for row in newcomers]))
                self.steps = fresh if self.steps is None else join(self.steps, fresh)
                self.rows += newcomers
            return self._write(torch.cat(logits)) if logits else []

    def _keep(self, kept: list[int]) -> None:
        if len(kept) == len(self.rows):
            return
        self.rows = [self.rows[index] for index in kept]
        if self.steps is None or not kept:
            self.steps = None
            return
        index = torch.tensor(kept, device=self.chosen.device)
        self.steps.select(index)
        self.chosen = self.chosen[index]

    def _write(self, logits: Tensor) -> list[Next]:  # (R, V)
        log_probs = logits.log_softmax(-1)
        self.chosen = self._choose(self._allowed(logits))
        own = log_probs.gather(1, self.chosen[:, None])[:, 0].tolist()
        most = max(row.likeliest for row in self.rows)
        best = log_probs.topk(min(most, log_probs.size(1)), dim=-1) if most else None
        result, stay = [], []
        for index, (row, token) in enumerate(zip(self.rows, self.chosen.tolist(), strict=True)):
            others: list[tuple[int, float]] = []
            if best is not None and row.likeliest:
                pair = (part[index, : row.likeliest].tolist() for part in (best.indices, best.values))
                others = list(zip(*pair, strict=True))
            ended = token == self.end
            if not ended:
                row.written.append(token)
            last = ended or len(row.written) >= row.limit
            result.append(Next(row, token, own[index], others, ended, last))
            if not last:
                stay.append(index)
        self._keep(stay)
        return result

    def _allowed(self, logits: Tensor) -> Tensor:
        """Logits with −∞ at what may not come next; rows are of different lengths, so each is asked for by itself
        where that matters."""
        ours = self.constraints
        if not ours.needs_history and not ours.min_length:
            return ours.forbid(logits, [], 0, self.end)
        made = []
        for row, one in zip(self.rows, logits.split(1), strict=True):
            so_far = [[*row.prompt, *row.written]] if ours.needs_history else []
            made.append(ours.forbid(ours.penalise(one, so_far), so_far, len(row.written), self.end))
        return torch.cat(made)

    def _choose(self, scores: Tensor) -> Tensor:
        """A token for each row; rows of the same settings are drawn together."""
        groups: dict[Sampling, list[int]] = {}
        for index, row in enumerate(self.rows):
            groups.setdefault(replace(row.sampling, seed=0), []).append(index)
        chosen = torch.empty(len(self.rows), dtype=torch.long, device=scores.device)
        for how, members in groups.items():
            some = scores[members]
            if how.temperature == 0:
                chosen[members] = some.argmax(-1)
                continue
            chosen[members] = drawn(some, how, [self.rows[index].chance.random() for index in members])
        return chosen
