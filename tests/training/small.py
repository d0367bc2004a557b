"""A run small enough to train in a second, shared by the tests of this folder."""

from pathlib import Path
from typing import Any

import tomli_w

from clearhead.data.settings import DataSettings
from clearhead.data.splits import Splits, build
from clearhead.model import Transformer, configure
from clearhead.model import build as build_model
from clearhead.training.config import Recipe, TrainingSettings

DATA = DataSettings(task="copy", examples=120, held_out=20, symbols=6, longest=6)
MODEL: dict[str, Any] = {
    "preset": "tiny",
    "d_model": 16,
    "heads": 2,
    "d_ff": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
}


def recipe(dropout: float = 0.1, **training: Any) -> Recipe:
    """A few dozen updates with several epochs, validations and checkpoints among them."""
    usual: dict[str, Any] = {
        "steps": 24,
        "max_tokens": 96,
        "peak": 3e-3,
        "warmup": 5,
        "validate_every": 10,
        "checkpoint_every": 4,
    }
    settings = TrainingSettings(**{**usual, "log_every": 3, "threads": 1, **training})
    return Recipe(DATA, {**MODEL, "dropout": {"residual": dropout, "embedding": dropout}}, training=settings)


def splits() -> Splits:
    return build(DATA)


def model(dropout: float = 0.0) -> Transformer:
    changes = {key: value for key, value in MODEL.items() if key != "preset"}
    return build_model(configure("tiny", vocab_size=10, dropout=dropout, **changes))


def recipe_text(**training: Any) -> str:
    """The same as a file."""
    return tomli_w.dumps(recipe(**training).to_dict())


def write_recipe(path: Path, **training: Any) -> Path:
    path.write_text(recipe_text(**training))
    return path
