"""Training, from a recipe to a run folder. Read in this order:

config (recipes) · schedule · loss · optimizer · loop (the loop itself), then validate, checkpoint and report, which are
attached to it; distributed (more than one process); session, which puts them together.
"""

from importlib import import_module

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
