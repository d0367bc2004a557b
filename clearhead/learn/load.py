"""The learner's files as modules. What an exercise uses of an earlier one comes from the learner's own file, or is ours
where that exercise was skipped or failed, so that one mistake costs once.
"""

import importlib.util
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType

from clearhead.learn.exercise import Exercise
from clearhead.learn.source import our_parts


def load_file(path: Path, name: str) -> ModuleType:
    """Run a file as a module of this name; what it raises is raised."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def stand_in(exercise: Exercise, name: str) -> ModuleType:
    """A module of our own parts, under the name of the learner's file."""
    module = ModuleType(name)
    vars(module).update(our_parts(exercise))
    return module


def stand_in_for_others(
    folder: Path, course: Mapping[str, Exercise], names: Mapping[str, str], own: Collection[str]
) -> None:
    """Make the learner's folder importable, with our parts under the names of the files that are not in `own`."""
    sys.dont_write_bytecode = True  # nothing is written into the learner's folder
    sys.path.append(str(folder))  # last: a file named random.py must not stand in the way of Python's own
    for other in course.values():
        module = names[other.name].removesuffix(".py")
        sys.modules.pop(module, None)
        if other.name not in own:
            sys.modules[module] = stand_in(other, module)


def load_exercise(
    folder: Path, exercise: Exercise, course: Mapping[str, Exercise], names: Mapping[str, str], own: Collection[str]
) -> ModuleType:
    """The learner's file of an exercise; earlier ones are the learner's if they are in `own`, and otherwise ours."""
    stand_in_for_others(folder, course, names, own)
    return load_file(folder / names[exercise.name], names[exercise.name].removesuffix(".py"))
