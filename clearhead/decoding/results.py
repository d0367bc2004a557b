"""What the user gets back from a loaded model: text, and everything the model said about it."""

from dataclasses import dataclass

from clearhead.decoding.alignment import Alignment


@dataclass(frozen=True)
class Translation:
    """One translation; `others` are the next best ones, best first."""

    text: str
    tokens: list[int]
    log_probs: list[float]  # of each token, the end token's last
    score: float  # what beam search ranked it by; for greedy search the sum of the log-probabilities
    finished: bool  # False: cut off at the greatest length
    alignment: Alignment | None = None
    others: tuple["Translation", ...] = ()

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)


@dataclass(frozen=True)
class Continuation:
    """What a language model wrote after a prompt."""

    text: str  # without the prompt
    tokens: list[int]
    log_probs: list[float]
    finished: bool

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)


@dataclass(frozen=True)
class Score:
    """What a model makes of a given text."""

    tokens: list[int]  # the tokens predicted, the end token last where there is one
    log_probs: list[float]

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)


@dataclass(frozen=True)
class Prediction:
    """The likeliest label of a text, and the probability of each in the order of the model's labels."""

    label: str
    probability: float
    probabilities: tuple[float, ...]
