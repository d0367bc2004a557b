"""Training for experiments: the package's own loop, on small models, with what happened on the way written down.

An arm differs from another by its configuration, its settings, the attention it is built with (`attend`), or a change
made to the fresh model (`change`); everything else is the same, down to the seed's data and weights.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from clearhead.data.batch import Dataset
from clearhead.data.settings import DataSettings
from clearhead.data.splits import Splits
from clearhead.data.splits import build as build_data
from clearhead.errors import InputError
from clearhead.model import ModelConfig, Transformer, build, configure
from clearhead.model.attention import Attend
from clearhead.training.config import TrainingSettings
from clearhead.training.loop import Callback, Loop, seed_of
from clearhead.training.validate import evaluate


@dataclass
class Trained:
    """A trained model and its history. If training broke down, `diverged` is the update at which it did."""

    model: Transformer
    loop: Loop
    losses: list[float]  # of each update, per token
    norms: list[float]  # of each update's gradient, before clipping
    diverged: int | None = None

    def scores(self, data: Dataset, max_tokens: int = 4096) -> dict[str, float]:
        """Loss per token, and where there are answers also `accuracy` and `exact`; after a breakdown the worst."""
        if self.diverged is not None:
            return {"loss": math.log(self.model.config.vocab_size), "accuracy": 0.0, "exact": 0.0}
        found = evaluate(self.loop.objective, data, data.plan(0, 0, max_tokens), self.loop.ranks)
        # the results that the lab has kept know only this accuracy, so in its tables the short name will do
        return {name.removeprefix("token_"): value for name, value in found.items()}

    def smoothed(self, points: int) -> list[float]:
        """The training loss in `points` stretches of equal length, each its mean; a breakdown shortens it."""
        size = max(1, self.loop.settings.steps // points)
        stretches = [self.losses[start : start + size] for start in range(0, len(self.losses), size)]
        return [sum(stretch) / len(stretch) for stretch in stretches if len(stretch) == size]


def train(
    config: ModelConfig,
    data: Dataset,
    settings: TrainingSettings,
    attend: Attend | None = None,
    change: Callable[[Any], object] | None = None,
    watch: Sequence[Callback] = (),
) -> Trained:
    """Build the model from the seed of the settings, change it, train it."""
    torch.manual_seed(seed_of(settings.seed, "weights"))
    model = build(config, attend)
    if change is not None:
        change(model)
    return continue_training(model, data, settings, watch)


def continue_training(
    model: Transformer, data: Dataset, settings: TrainingSettings, watch: Sequence[Callback] = ()
) -> Trained:
    """Train a model that exists; a gradient that is not finite ends it, and is a result, not an error."""
    losses: list[float] = []
    norms: list[float] = []

    def note(loop: Loop) -> None:
        losses.append(loop.update.loss)
        norms.append(loop.update.norm)

    loop = Loop(model, data, settings, callbacks=[note, *watch])
    diverged = None
    try:
        loop.run()
    except InputError as error:
        if "is not finite" not in str(error):
            raise
        diverged = loop.progress.step + 1
    return Trained(model, loop, losses, norms, diverged)


def brief(steps: int, seed: int, peak: float = 1e-3, warmup: int | None = None, **more: Any) -> TrainingSettings:
    """Settings of a short training: up to the peak within a tenth of the steps, then level."""
    warmup = max(1, steps // 10) if warmup is None else warmup
    usual: dict[str, Any] = {"schedule": "constant", "max_tokens": 512}
    return TrainingSettings(steps=steps, seed=seed, peak=peak, warmup=warmup, **(usual | more))


def small(vocab_size: int, **changes: Any) -> ModelConfig:
    """A model that learns something within seconds: two layers of width 64, pre-norm, no dropout."""
    plain: dict[str, Any] = {
        "vocab_size": vocab_size,
        "d_model": 64,
        "heads": 4,
        "d_ff": 256,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "norm": {"placement": "pre"},
        "dropout": 0.0,
    }
    return configure(None, **(plain | changes))


@lru_cache(maxsize=4)
def lists(task: str, examples: int = 20_000, symbols: int = 20, longest: int = 12, shortest: int = 1) -> Splits:
    """One of the tasks on lists: copy, reverse, sort, count."""
    settings: Any = {"task": task, "examples": examples, "symbols": symbols, "longest": longest, "shortest": shortest}
    return build_data(DataSettings(**settings, held_out=500))
