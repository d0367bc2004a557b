"""How a description reaches the code of a clone: by path, without installing it and without running its scripts."""

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from clearhead.doctor.describe import Description


class AbsentType(type):
    """A class derived from something absent has whatever is asked of it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name)


class AbsentBase(metaclass=AbsentType):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass


class Absent(types.ModuleType):
    """Stands for a package that a script imports for its data or its plots, and that no description needs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # so that its submodules can be imported, too

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return Absent(self.__name__)

    def __or__(self, other: Any) -> Any:  # in annotations
        return other

    __ror__ = __or__

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return () if AbsentBase in bases else (AbsentBase,)


class AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if any(name == given or name.startswith(given + ".") for given in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def is_definition(node: ast.stmt) -> bool:
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
    return isinstance(node, kinds)


@dataclass(frozen=True)
class Clone:
    """A folder with somebody's repository."""

    folder: Path

    @property
    def commit(self) -> str:
        asked = ["git", "-C", str(self.folder), "rev-parse", "HEAD"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        return answer.stdout.strip() or "unknown"

    def absent(self, *names: str) -> None:
        """Import nothing for these packages where they are not installed."""
        missing = {name for name in names if not importable(name)}
        sys.meta_path.insert(0, AbsentFinder(missing))

    def module(self, name: str, under: str = ".") -> Any:
        """Import a module by the name its own scripts use; `under` is the folder they run in."""
        sys.path.insert(0, str(self.folder / under))
        for folder in (self.folder / under).iterdir():
            # `utils` without an __init__: any installed package of that name would come before it
            if folder.name not in sys.modules and any(folder.glob("*.py")) and not (folder / "__init__.py").exists():
                self.package(folder.name, under)
        with contextlib.chdir(self.folder / under):
            return importlib.import_module(name)

    def package(self, name: str, under: str = ".") -> None:
        """Make a package's modules importable without running its __init__, which may import the whole world."""
        bare = types.ModuleType(name)
        bare.__path__ = [str(self.folder / under / name.replace(".", "/"))]
        sys.modules[name] = bare

    def definitions(self, file: str, **constants: Any) -> types.SimpleNamespace:
        """The imports, classes and functions of a script, which is not run; `constants` are its globals."""
        path = self.folder / file
        sys.path.insert(0, str(path.parent))
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        tree.body = [node for node in tree.body if is_definition(node)]
        script = types.ModuleType(path.stem)
        script.__file__ = str(path)
        sys.modules[path.stem] = script
        script.__dict__.update(constants)
        exec(compile(tree, str(path), "exec"), script.__dict__)
        return types.SimpleNamespace(**script.__dict__)


Describe = Callable[[Clone], Description]
Function = TypeVar("Function", bound=Describe)


@dataclass(frozen=True)
class Entry:
    """One description of a code base."""

    repository: str
    describe: Describe


WILD: dict[str, Entry] = {}


def wild(repository: str) -> Callable[[Function], Function]:
    """Enter a description into the zoo, under its repository and its own name."""

    def enter(describe: Function) -> Function:
        WILD[f"{repository}#{describe.__name__}"] = Entry(repository, describe)
        return describe

    return enter
