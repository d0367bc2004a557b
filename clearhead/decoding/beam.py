"""Beam search: keep the best few hypotheses at each step instead of one (Graves, 2012; section 6.1 of the paper).

Each sentence has `beam_size` slots. A step extends every live hypothesis by every token and keeps the best; one that
takes the end token is finished. A finished hypothesis keeps its slot, so that fewer stay live, and a beam of one is
greedy search; with `refill=True` its slot goes to the next best live one, as in `transformers`.

Sums of log-probabilities favour short outputs, so finished hypotheses are compared by sum / penalty(length). The
search of a sentence ends only when no live hypothesis can still win: log-probabilities are never above zero, so a live
sum, divided by the kindest penalty of all lengths it may still reach, bounds everything that can become of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from clearhead.decoding.abandon import check_wanted
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.greedy import top_tokens
from clearhead.decoding.steps import Hypothesis, Steps
from clearhead.errors import require


@dataclass(frozen=True)
class BeamSearch:
    """The paper's choice: beam 4 and GNMT's penalty with α = 0.6."""

    beam_size: int = 4
    length_penalty: float = 0.6  # α; 0: none. Higher favours longer outputs
    length_form: Literal["gnmt", "power"] = "gnmt"
    n_best: int = 1
    refill: bool = False
    constraints: Constraints = field(default_factory=Constraints)

    def __post_init__(self) -> None:
        require(self.beam_size > 0, f"beam_size must be positive, not {self.beam_size}")
        require(
            0 < self.n_best <= self.beam_size,
            f"n_best must be between 1 and beam_size = {self.beam_size}, not {self.n_best}",
        )
        require(math.isfinite(self.length_penalty), f"length_penalty must be a number, not {self.length_penalty}")
        require(
            self.length_form in ("gnmt", "power"), f"length_form must be 'gnmt' or 'power', not {self.length_form!r}"
        )

    def penalty(self, length: int) -> float:
        """What the sum of log-probabilities is divided by; `length` counts the end token."""
        if self.length_form == "gnmt":  # Wu et al., 2016, equation 14
            return ((5 + length) / 6) ** self.length_penalty
        return length**self.length_penalty

    def bound(self, total: float, length: int, limit: int) -> float:
        """The best score that a live hypothesis of this sum and length can still get."""
        furthest = limit if self.length_penalty > 0 else min(length + 1, limit)
        return total / self.penalty(furthest)


@dataclass
class Beams:
    """The hypotheses of the B sentences still searched, k slots each."""

    sentences: list[int]  # which sentence each of the B is
    totals: Tensor  # (B, k) sums of log-probabilities, best first; −∞ in an empty slot
    tokens: Tensor  # (B, k, length)
    log_probs: Tensor  # (B, k, length), the model's own, without penalties
    open: Tensor  # (B,) slots that no finished hypothesis keeps

    def take(self, slots: Tensor) -> None:
        """Slot j of each sentence becomes what slot slots[·, j] was."""
        wide = slots[..., None].expand(-1, -1, self.tokens.size(2))
        self.totals, self.tokens = self.totals.gather(1, slots), self.tokens.gather(1, wide)
        self.log_probs = self.log_probs.gather(1, wide)

    def keep(self, kept: list[int]) -> None:
        """Only these of the B sentences stay."""
        self.sentences = [self.sentences[index] for index in kept]
        self.totals, self.tokens, self.log_probs = self.totals[kept], self.tokens[kept], self.log_probs[kept]
        self.open = self.open[kept]


def extend(logits: Tensor, beams: Beams, how: BeamSearch, prompts: Sequence[Sequence[int]], end: int | None) -> Tensor:
    """Replace the k slots of each sentence by its best continuations, best first; returns the slot each came from.

    With `refill` there are 2k of them, for the case that all of the best k end.
    """
    sentences, slots, length = beams.tokens.shape
    constraints, history = how.constraints, []
    if constraints.needs_history:
        pools = zip(beams.sentences, beams.tokens.tolist(), strict=True)
        history = [[*prompts[sentence], *written] for sentence, pool in pools for written in pool]
    adjusted = constraints.penalise(logits, history)
    scores = constraints.forbid(adjusted.log_softmax(-1), history, length, end)
    wanted = min(2 * slots if how.refill else slots, slots * logits.size(1))
    each = min(wanted, logits.size(1))
    gains, tokens = top_tokens(scores, each)  # (B·k, each)
    own = gains if adjusted is logits else logits.log_softmax(-1).gather(1, tokens)
    totals = (beams.totals[..., None] + gains.view(sentences, slots, each)).flatten(1)  # (B, k·each)
    totals, index = totals.topk(wanted, dim=-1)
    parents = index // each
    beams.take(parents)
    beams.totals = totals
    beams.tokens = torch.cat((beams.tokens, tokens.reshape(sentences, -1).gather(1, index)[..., None]), 2)
    beams.log_probs = torch.cat((beams.log_probs, own.reshape(sentences, -1).gather(1, index)[..., None]), 2)
    return parents


def finish(beams: Beams, ending: Tensor, found: list[list[Hypothesis]], how: BeamSearch, end: int | None) -> None:
    """Put the hypotheses marked in `ending` (B, n) into their sentence's pool, which holds the k best."""
    for index, slot in ending.nonzero().tolist():
        tokens = beams.tokens[index, slot].tolist()
        score = float(beams.totals[index, slot]) / how.penalty(len(tokens))
        ended = tokens[-1] == end
        log_probs = beams.log_probs[index, slot].tolist()
        pool = found[beams.sentences[index]]
        pool.append(Hypothesis(tokens[:-1] if ended else tokens, log_probs, ended, score))
        pool.sort(key=lambda hypothesis: -hypothesis.score)
        del pool[how.beam_size :]


def decided(best_total: float, length: int, limit: int, pool: list[Hypothesis], how: BeamSearch) -> bool:
    """Whether nothing live can get into the n best any more."""
    if best_total == -math.inf:
        return True
    return len(pool) >= how.n_best and how.bound(best_total, length, limit) <= pool[how.n_best - 1].score


@torch.inference_mode()
def beam_search(
    steps: Steps,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],  # the most tokens each sentence may write, the end token included
    end: int | None,
    how: BeamSearch,
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each prompt, best first."""
    logits, slots = steps.start(prompts), how.beam_size
    count, device = len(prompts), logits.device
    steps.widen(slots)
    logits = logits.repeat_interleave(slots, dim=0)
    found: list[list[Hypothesis]] = [[] for _ in prompts]
    beams = Beams(
        sentences=list(range(count)),
        totals=logits.new_full((count, slots), -math.inf),
        tokens=torch.empty(count, slots, 0, dtype=torch.long, device=device),
        log_probs=logits.new_empty(count, slots, 0),
        open=torch.full((count,), slots, device=device),
    )
    beams.totals[:, 0] = 0  # all slots are the same so far: only the first is extended
    while True:
        check_wanted()
        parents = extend(logits, beams, how, prompts, end)
        length = beams.tokens.size(2)
        possible = beams.totals > -math.inf
        chosen = possible & (torch.arange(possible.size(1), device=device) < beams.open[:, None])
        full = torch.tensor([length >= limits[sentence] for sentence in beams.sentences], device=device)
        ends = full[:, None] | (beams.tokens[:, :, -1] == (-1 if end is None else end))
        finish(beams, ends & chosen, found, how, end)
        if not how.refill:
            beams.open = beams.open - (ends & chosen).sum(1)
        live = ~ends & (possible if how.refill else chosen)
        beams.totals = beams.totals.masked_fill(~live, -math.inf)
        order = torch.argsort(~live, dim=1, stable=True)[:, :slots]  # live ones first, best first
        beams.take(order)
        parents = parents.gather(1, order)
        kept = [
            index
            for index, (sentence, total) in enumerate(zip(beams.sentences, beams.totals[:, 0].tolist(), strict=True))
            if not decided(total, length, limits[sentence], found[sentence], how)
        ]
        rows = (torch.arange(len(beams.sentences), device=device)[:, None] * slots + parents)[kept]
        beams.keep(kept)
        if not kept:
            return [pool[: how.n_best] for pool in found]
        steps.select(rows.flatten())
        logits = steps.step(beams.tokens[:, :, -1].flatten())
