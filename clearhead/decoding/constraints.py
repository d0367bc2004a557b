"""What a search may not write, or should write less gladly. All of it changes logits, row by row, before the choice.

* least length: the end token is forbidden until then;
* n-gram blocking (Paulus et al., 2017): no n-gram appears twice, the prompt counted in;
* repetition penalty (Keskar et al., 2019): logits of tokens seen before are divided by it if positive, and multiplied
  if negative.

A forbidden token gets −∞, and the others keep their log-probabilities: they are not normalised again, so the score of
a hypothesis stays the model's own. Only the repetition penalty changes what the model says, and it is applied to the
logits, before the softmax, in every search alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from clearhead.errors import require


@dataclass(frozen=True)
class Constraints:
    """Nothing is constrained by default."""

    min_length: int = 0  # tokens before the end token
    no_repeat_ngram: int = 0  # this many tokens in a row appear only once; 0: any number of times
    repetition_penalty: float = 1.0  # above 1: tokens seen before become less likely
    forbidden: tuple[int, ...] = ()  # ids that are never written: padding, the start token, rows without a token

    def __post_init__(self) -> None:
        require(self.min_length >= 0, f"min_length must not be negative, not {self.min_length}")
        require(self.no_repeat_ngram >= 0, f"no_repeat_ngram must not be negative, not {self.no_repeat_ngram}")
        require(
            math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0,
            f"repetition_penalty must be positive, not {self.repetition_penalty}",
        )

    @cached_property
    def _forbidden(self) -> Tensor:
        return torch.tensor(self.forbidden)

    @property
    def needs_history(self) -> bool:
        return self.no_repeat_ngram > 0 or self.repetition_penalty != 1

    def penalise(self, logits: Tensor, history: Sequence[Sequence[int]]) -> Tensor:
        """Logits (R, V) with the repetition penalty; `history` is each row so far, its prompt included."""
        if self.repetition_penalty == 1:
            return logits
        logits = logits.clone()
        for row, written in enumerate(history):
            seen = torch.tensor(sorted(set(written)), device=logits.device)
            values, by = logits[row, seen], self.repetition_penalty
            logits[row, seen] = torch.where(values > 0, values / by, values * by)
        return logits

    def forbid(self, scores: Tensor, history: Sequence[Sequence[int]], length: int, end: int | None) -> Tensor:
        """Scores (R, V) of the token after `length` tokens, changed in place: −∞ at what may not come next."""
        if self.forbidden:
            scores.index_fill_(1, self._forbidden.to(scores.device), -math.inf)
        if end is not None and length < self.min_length:
            scores[:, end] = -math.inf
        for row, written in enumerate(history if self.no_repeat_ngram else ()):
            tokens = list(repeated_ngrams(written, self.no_repeat_ngram))
            if tokens:
                kept = scores[row, tokens]
                scores[row, tokens] = -math.inf
                if bool((scores[row] == -math.inf).all()):  # nothing left to write: a repetition is better than no text
                    scores[row, tokens] = kept
        return scores


def repeated_ngrams(written: Sequence[int], size: int) -> set[int]:
    """Tokens that would complete an n-gram of this size for the second time."""
    if len(written) < size:
        return set()
    tail = tuple(written[len(written) - size + 1 :])
    return {
        written[start + size - 1]
        for start in range(len(written) - size + 1)
        if tuple(written[start : start + size - 1]) == tail
    }
