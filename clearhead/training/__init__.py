"""Training, from a recipe to a run folder. Read in this order:

config (recipes) · schedule · loss · optimizer · loop (the loop itself), then validate, checkpoint and report, which are
attached to it; distributed (more than one process); session, which puts them together.
"""

from typing import TYPE_CHECKING

from clearhead.lazy import on_first_use

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
__getattr__ = on_first_use(__name__, _HOME)  # because a recipe can be read without torch
