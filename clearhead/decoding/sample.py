"""Sampling: write what the model finds likely, by chance.

Temperature sharpens or flattens the distribution; then what is unlikely is cut off: top-k (Fan et al., 2018) keeps the
k likeliest tokens, top-p (Holtzman et al., 2019) the smallest set that holds a share p of the probability, min-p
(Nguyen et al., 2024) those at least min_p times as likely as the likeliest, in this order.

Each sample draws from a generator of its own, made of the seed and the sample's number: the text that a prompt and a
seed give does not depend on what else is in the batch.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.decoding.constraints import Constraints
from clearhead.decoding.greedy import collect, walk
from clearhead.decoding.steps import Hypothesis, Steps
from clearhead.errors import require


@dataclass(frozen=True)
class Sampling:
    """How chance chooses. By default it draws from the model's distribution as it is."""

    temperature: float = 1.0  # 0: the most likely token, always
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            math.isfinite(self.temperature) and self.temperature >= 0,
            f"temperature must be 0 or positive, not {self.temperature}",
        )
        require(self.top_k >= 0, f"top_k must be 0 (all) or positive, not {self.top_k}")
        require(0 < self.top_p <= 1, f"top_p must be above 0 and at most 1, not {self.top_p}")
        require(0 <= self.min_p <= 1, f"min_p must be between 0 and 1, not {self.min_p}")

    def chooser(self, samples: int = 1) -> "Chooser":
        return Chooser(self, samples)


def candidates(scores: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
    """Tokens (R, n), likeliest first, and their probabilities, zero where cut off and not yet normalised again."""
    # float64: the cumulative sum is compared with a random number, and 10,000 small float32 terms drift by more
    # what is divided is below the greatest: a temperature near 0 would otherwise give ∞, and ∞ − ∞ is no number
    wide = scores.double()
    wide = (wide - wide.amax(-1, keepdim=True)) / how.temperature
    if 0 < how.top_k < wide.size(-1):
        values, tokens = wide.topk(how.top_k, dim=-1)
    else:
        values, tokens = wide.sort(dim=-1, descending=True, stable=True)
    probabilities = values.softmax(-1)
    if how.top_p < 1:
        before = probabilities.cumsum(-1) - probabilities  # a token stays while those before it hold less than p
        probabilities = probabilities.masked_fill(before >= how.top_p, 0)
    if how.min_p > 0:
        probabilities = probabilities.masked_fill(probabilities < how.min_p * probabilities[:, :1], 0)
    return tokens, probabilities


def drawn(scores: Tensor, how: Sampling, draws: Sequence[float]) -> Tensor:
    """The token of each row (R,) that a number from 0 to 1 falls on."""
    tokens, probabilities = candidates(scores, how)
    reached = probabilities.cumsum(-1)  # (R, n)
    share = torch.tensor(draws, dtype=torch.float64, device=scores.device)
    # the first token at which the cumulative probability exceeds the draw; the last column is the whole
    index = torch.searchsorted(reached, (share * reached[:, -1])[:, None], right=True)
    most = (probabilities > 0).sum(-1, keepdim=True) - 1  # a draw of 0.999… may round up to the whole
    return tokens.gather(1, torch.minimum(index, most))[:, 0]


class Chooser:
    """Draws each row's token with the row's own generator. Row r is sample r % samples of its prompt."""

    def __init__(self, how: Sampling, samples: int) -> None:
        self.how = how
        self.samples = samples
        self.generators: dict[int, random.Random] = {}

    def __call__(self, scores: Tensor, rows: Sequence[int]) -> Tensor:
        if self.how.temperature == 0:
            return scores.argmax(-1)
        return drawn(scores, self.how, [self.draw(row) for row in rows])

    def draw(self, row: int) -> float:
        if row not in self.generators:
            self.generators[row] = random.Random(f"{self.how.seed}/{row % self.samples}")
        return self.generators[row].random()


@torch.inference_mode()
def sample(
    steps: Steps,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    end: int | None,
    how: Sampling,
    constraints: Constraints | None = None,
    samples: int = 1,
) -> list[list[Hypothesis]]:
    """`samples` continuations of each prompt."""
    logits = steps.start(prompts)
    if samples > 1:
        copies = torch.arange(len(prompts), device=logits.device).repeat_interleave(samples)
        steps.select(copies)
        logits = logits[copies]
    each = [list(prompt) for prompt in prompts for _ in range(samples)]
    most = [limit for limit in limits for _ in range(samples)]
    walked = walk(steps, logits, each, most, end, constraints or Constraints(), how.chooser(samples))
    written = collect(walked, len(each), end)
    return [written[start : start + samples] for start in range(0, len(written), samples)]
