"""Finding the experiments: every file of `experiments/` holds one, as `EXPERIMENT`."""

import pkgutil
from importlib import import_module

from clearhead.errors import InputError
from clearhead.lab import experiments
from clearhead.lab.experiment import Experiment
from clearhead.settings import nearest


def module_name(name: str) -> str:
    return f"{experiments.__name__}.{name.replace('-', '_')}"


def names() -> list[str]:
    """All names, alphabetically; nothing is imported for them."""
    return sorted(found.name.replace("_", "-") for found in pkgutil.iter_modules(experiments.__path__))


def find(name: str) -> Experiment:
    """The experiment of a name."""
    if name not in names():
        raise InputError(f"no experiment {name!r}{nearest(name, names())}")
    found: Experiment = import_module(module_name(name)).EXPERIMENT
    return found


def everything() -> list[Experiment]:
    """All experiments, in their own order."""
    return sorted(map(find, names()), key=lambda experiment: experiment.number)
