"""Next-token logits, one step at a time: all that a search needs from a model.

A search holds a number of rows (sentences, or the beams of sentences), asks for the logits of each row's next token,
chooses, and goes on with the chosen tokens. Rows that have finished leave, rows that won are copied: `select`. What is
read first here is `ModelSteps`, on the model as it is and its KV cache; `fast_steps.py` holds its fast twin.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.model import DecoderOnly, EncoderDecoder, KVCache


@dataclass(frozen=True)
class Hypothesis:
    """One sequence that a search wrote: tokens without the prompt, and without the end token if there was one."""

    tokens: list[int]
    log_probs: list[float]  # the model's log-probability of each token, the end token's last; before any constraint
    finished: bool  # ended by itself; False: cut off at the greatest length
    score: float  # what the search ranked it by

    @property
    def log_prob(self) -> float:
        """Of the whole sequence, the end token included."""
        return sum(self.log_probs)


class Steps(Protocol):
    """What a search sees of a model. Rows are numbered 0 … R−1; each group of `width` rows shares one source."""

    rows: int
    width: int

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read a prompt for each row; the logits (R, V) of the token after it."""

    def step(self, tokens: Tensor) -> Tensor:
        """Go on with these tokens (R,); the logits (R, V) of the next."""

    def widen(self, width: int) -> None:
        """Every row becomes `width` rows that are the same so far: beams, or samples of one prompt."""

    def select(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was. Whole groups may leave; inside a group rows may be copied or dropped."""


class ModelSteps:
    """The model itself, with the KV cache, or (`cached=False`) reading everything again at each step."""

    def __init__(
        self,
        model: EncoderDecoder | DecoderOnly,
        source: Tensor | None = None,  # (B, T)
        source_real: Tensor | None = None,  # (B, T), True at real tokens
        cached: bool = True,
    ) -> None:
        self.model = model
        self.rows, self.width = 0, 1
        self.cached = cached
        self.memory, self.source_real = read_source(model, source, source_real), source_real
        self.cache: KVCache | None = None
        self.tokens, self.real = torch.empty(0, 0, dtype=torch.long), torch.empty(0, 0, dtype=torch.bool)

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        self.rows = len(prompts)
        self.tokens, self.real = left_pad(prompts, self.model.embedding.weight.device)
        if self.cached:
            self.cache = KVCache(self.model.config, self.rows)
        return self._logits(self.tokens, None if bool(self.real.all()) else self.real)

    def step(self, tokens: Tensor) -> Tensor:
        if self.cached:
            return self._logits(tokens[:, None], None)
        self.tokens = torch.cat((self.tokens, tokens[:, None]), dim=1)
        self.real = torch.cat((self.real, self.real.new_ones(self.rows, 1)), dim=1)
        return self._logits(self.tokens, self.real)

    def _logits(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        if isinstance(self.model, EncoderDecoder):
            assert self.memory is not None
            hidden = self.model.decode(tokens, self.memory, self.source_real, real, self.cache)
        else:
            hidden = self.model.hidden(tokens, real, cache=self.cache)
        return self.model.head(hidden[:, -1:])[:, 0]

    def widen(self, width: int) -> None:
        if width > 1:
            self.select(torch.arange(self.rows, device=self.tokens.device).repeat_interleave(width))
        self.width = width

    def select(self, rows: Tensor) -> None:
        self.rows = rows.numel()
        self.tokens, self.real = self.tokens[rows], self.real[rows]
        if self.cache is not None:
            self.cache.reorder(rows)
        if self.memory is not None:
            self.memory = self.memory[rows]
        if self.source_real is not None:
            self.source_real = self.source_real[rows]


def read_source(
    model: EncoderDecoder | DecoderOnly, source: Tensor | None, source_real: Tensor | None
) -> Tensor | None:
    """The memory that an encoder-decoder decodes from; None for a model without a source."""
    if not isinstance(model, EncoderDecoder):
        return None
    if source is None:
        raise InputError("an encoder-decoder decodes from a source; none was given")
    return model.encode(source, source_real)


def left_pad(prompts: Sequence[Sequence[int]], device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Prompts of different lengths as one tensor (R, S) that ends where each of them ends, and where its tokens are."""
    longest = max(map(len, prompts), default=0)
    if not prompts or any(len(prompt) == 0 for prompt in prompts):
        raise InputError("every prompt needs at least one token to predict the next from")
    tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    real = torch.arange(longest, device=device) >= longest - lengths[:, None]
    return tokens, real


@contextmanager
def using_threads(count: int, device: torch.device) -> Iterator[None]:
    """So many threads of torch inside this, where it computes on the CPU."""
    before = torch.get_num_threads()
    if device.type != "cpu" or before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
