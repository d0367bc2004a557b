"""Free writing, watched: token after token, with what the model held for likely at each step.

The searches are those of clearhead/decoding; here they run on steps that apply edits and remember the distributions.
A token can be forced at any step, and the model goes on from there. Usually the KV cache is used; where an edit lets
earlier tokens see later ones (no mask), everything is read again at each step, as the model then would.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from clearhead.decoding.constraints import Constraints
from clearhead.decoding.greedy import most_likely, walk
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.sample import Sampling, candidates
from clearhead.decoding.steps import ModelSteps
from clearhead.errors import InputError
from clearhead.explore.readings import MOST_ANSWER, Reading, outputs, with_answer
from clearhead.model import DecoderOnly, EncoderDecoder, Transformer, trace
from clearhead.model.trace import Edit

TOP = 12  # likeliest tokens that are kept of each step


class EditedSteps(ModelSteps):
    """The model's next-token logits with edits on the way. `seen` holds the log-probabilities of every step."""

    def __init__(self, loaded: LoadedModel, reading: Reading, edit: Edit) -> None:
        self.edit = edit
        self.seen: list[Tensor] = []  # (R, V) of each step, before any constraint
        model = loaded.model
        assert isinstance(model, EncoderDecoder | DecoderOnly)
        source = torch.tensor([reading.source], device=loaded.device) if reading.source else None
        with self.edited(model, *(() if source is None else ("encoder.", "embedding."))):
            super().__init__(model, source, cached=not any(name.endswith(".mask") for name in edit))

    def edited(self, model: Transformer, *parts: str) -> AbstractContextManager[object]:
        """The edits of the half that is about to run; the other half's would meet no tensor, and be refused."""
        edit = {name: change for name, change in self.edit.items() if name.startswith(parts)}
        return trace(model, edit=edit) if edit else nullcontext()

    def _logits(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        with self.edited(self.model, "decoder.", "embedding.", "output."):
            # a row without padding needs no mask of its real tokens
            logits = super()._logits(tokens, None if real is None or bool(real.all()) else real)
        self.seen.append(logits.float().log_softmax(-1).cpu())
        return logits


@dataclass(frozen=True)
class Written:
    """What was written, and how sure the model was of each token."""

    ids: list[int]  # the end token last if it ended
    log_probs: list[float]  # the model's own, also of what was forced
    top: list[list[tuple[int, float]]]  # the likeliest tokens of each step, with their probabilities
    finished: bool
    forced: list[int] = field(default_factory=list)  # the steps at which a token was forced


def draw(seed: int, step: int) -> float:
    """A number from 0 to 1 for a step, the same in Python and in the page's JavaScript (both know 32-bit integers)."""
    state = (seed * 0x9E3779B1 + step * 0x85EBCA6B + 0x6D2B79F5) & 0xFFFFFFFF
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        state = ((state ^ (state >> shift)) * factor) & 0xFFFFFFFF
    return (state ^ (state >> 15)) / 2**32


def forbidden(loaded: LoadedModel) -> tuple[int, ...]:
    """Marks that no search writes: padding, and the start token where it is not the end token, too."""
    marks = (loaded.tokenizer.pad_id, loaded.tokenizer.bos_id)
    return tuple(mark for mark in marks if mark is not None and mark != end_of(loaded))


def end_of(loaded: LoadedModel) -> int | None:
    """The token with which an answer ends, if answers end."""
    apart = loaded.model.config.kind == "encoder-decoder" or loaded.documents != "none"
    return loaded.tokenizer.eos_id if apart else None


def room(loaded: LoadedModel, reading: Reading, most: int | None = None) -> int:
    """How many tokens may be written."""
    config, settings = loaded.model.config, loaded.settings
    wanted = len(reading.source) + settings.max_extra if config.kind == "encoder-decoder" else settings.max_tokens
    if config.positions.max_length is not None:
        wanted = min(wanted, config.positions.max_length - len(reading.prompt) + 1)
    return max(1, min(wanted, MOST_ANSWER, most or MOST_ANSWER))


@torch.inference_mode()
def write(
    loaded: LoadedModel,
    reading: Reading,
    edit: Edit | None = None,
    force: Mapping[int, int] | None = None,  # step -> token
    sampling: Sampling | None = None,  # None: always the likeliest
    most: int | None = None,
) -> Written:
    """Write an answer, greedily or by chance."""
    force, limit = dict(force or {}), room(loaded, reading, most)
    known = loaded.model.config.vocab_size
    for step, token in force.items():
        if not 0 <= step < limit or not 0 <= token < known:
            raise InputError(
                f"cannot force token {token} at step {step}: steps go from 0 to {limit - 1}, tokens to {known - 1}"
            )
    steps = EditedSteps(loaded, reading, edit or {})
    logits = steps.start([list(reading.prompt)])

    def choose(scores: Tensor, rows: Sequence[int]) -> Tensor:
        step = len(steps.seen) - 1
        if step in force:
            return torch.tensor([force[step]], device=scores.device)
        if sampling is None or sampling.temperature == 0:
            return most_likely(scores, rows)
        tokens, probabilities = candidates(scores, sampling)
        reached = probabilities[0].cumsum(-1)
        place = int(torch.searchsorted(reached, draw(sampling.seed, step) * reached[-1], right=True))
        return tokens[:, min(place, int((probabilities[0] > 0).sum()) - 1)]

    constraints = Constraints(forbidden=forbidden(loaded))
    end, ids, log_probs = end_of(loaded), list[int](), list[float]()
    for written in walk(steps, logits, [list(reading.prompt)], [limit], end, constraints, choose):
        ids.append(written[0].token)
        log_probs.append(written[0].log_prob if written[0].log_prob is not None else math.nan)
    top = [likeliest(step[0]) for step in steps.seen[: len(ids)]]
    return Written(ids, log_probs, top, bool(ids) and ids[-1] == end, sorted(step for step in force if step < len(ids)))


def likeliest(log_probs: Tensor, count: int = TOP) -> list[tuple[int, float]]:
    """The likeliest ids of (V,), best first, with their probabilities."""
    found = log_probs.topk(min(count, log_probs.numel()))
    return [
        (token, math.exp(value)) for value, token in zip(found.values.tolist(), found.indices.tolist(), strict=True)
    ]


def own_answer(loaded: LoadedModel, reading: Reading, most: int | None = None) -> Reading:
    """The reading with what the model answers by itself: a translation as the run's settings have it, the likeliest
    continuation of up to `most` tokens (16 unless given), what the head of an encoder-only model says."""
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        found, end = loaded.translate_ids([reading.source])[0], end_of(loaded)
        return with_answer(loaded, reading, [*found.tokens, *([end] if found.finished and end is not None else [])])
    if isinstance(model, DecoderOnly):
        return with_answer(loaded, reading, write(loaded, reading, most=most or 16).ids)
    if not reading.places:
        return reading
    with torch.inference_mode():
        return with_answer(loaded, reading, outputs(loaded, reading)[0].argmax(-1).tolist())
