"""The exercises, one a file, in the order of their numbers. A file holds an `EXERCISE`; it is found by being here."""

import importlib
import pkgutil
from functools import cache

from clearhead.learn.exercise import Exercise


@cache
def course() -> dict[str, Exercise]:
    """Every exercise by its name, in order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = [importlib.import_module(f"{__name__}.{name}").EXERCISE for name in names]
    return {exercise.name: exercise for exercise in found}


def file_names() -> dict[str, str]:
    """The learner's file of each exercise: attention -> ex04_attention.py."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name.partition("_")[2]: f"{name.replace('e', 'ex', 1)}.py" for name in names}
