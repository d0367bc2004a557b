"""Training, from a recipe to a run folder. Read in this order:

config (recipes) · schedule · loss · optimizer · loop (the loop itself), then validate, checkpoint and report, which are
attached to it; distributed (more than one process); session, which puts them together.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the names of _HOME once more, because a type checker does not follow __getattr__
    from clearhead.training.config import Recipe as Recipe
    from clearhead.training.config import TrainingSettings as TrainingSettings
    from clearhead.training.config import load_recipe as load_recipe
    from clearhead.training.loop import Loop as Loop
    from clearhead.training.session import train as train

_HOME = {
    "Loop": "loop",
    "Recipe": "config",
    "TrainingSettings": "config",
    "load_recipe": "config",
    "train": "session",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> object:
    # on first use, because a recipe can be read without torch
    if name not in _HOME:
        raise AttributeError(f"module 'clearhead.training' has no attribute {name!r}")
    return getattr(import_module(f"clearhead.training.{_HOME[name]}"), name)
