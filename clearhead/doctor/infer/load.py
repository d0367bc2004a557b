"""From a target on the command line to the object it names: `pkg.module:Class`, `path/to/file.py:Class`, a file alone.

Importing runs the code of that module. Whatever it raises is told with its line.
"""

import contextlib
import importlib
import importlib.util
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from clearhead.doctor.infer.raised import where
from clearhead.doctor.infer.standin import standing_in
from clearhead.errors import InputError


@dataclass
class Loaded:
    """A module, how code gets hold of it, and what stood in for packages that are not installed."""

    module: ModuleType
    target: str  # what the user wrote before the colon
    file: Path | None = None
    absent: list[str] = field(default_factory=list)


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Keep what user code prints away from stdout, and the command's arguments away from user code."""
    arguments = sys.argv
    sys.argv = arguments[:1]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield printed
    finally:
        sys.argv = arguments


def split(target: str) -> tuple[str, str]:
    """What to import, and which name of it ("" for a module or file alone)."""
    head, colon, name = target.rpartition(":")
    if not colon or "/" in name or "\\" in name:
        return target, ""
    if not head:
        raise InputError(f"{target!r} names no module; wanted module:name or file.py:name, as in model.py:GPT")
    return head, name


def load(target: str) -> Loaded:
    """Import the module of a target: a dotted name, or the path of a file."""
    looks_like_a_file = target.endswith(".py") or "/" in target
    if looks_like_a_file and not Path(target).is_file():
        raise InputError(f"there is no file {target}")
    if "" not in sys.path:  # like `python -m`, find modules in the directory one stands in
        sys.path.insert(0, "")
    if not looks_like_a_file:
        return Loaded(run_import(target, target, None)[0], target)
    path = Path(target).resolve()
    module, absent = run_import(target, dotted(path), path)
    return Loaded(module, target, path, absent)


def import_file(path: str | Path) -> ModuleType:
    """The module in a file, for descriptions: packages that are not installed are stood in for, as when inferring."""
    return load(str(path)).module


def dotted(path: Path) -> str:
    """The name under which a file's own package would import it; its root comes onto the path."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").exists() and folder.name.isidentifier() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return ".".join(parts)


def run_import(target: str, name: str, path: Path | None) -> tuple[ModuleType, list[str]]:
    """Import, giving missing modules a second chance: beside an ancestor of the file, then as a stand-in."""
    known = sys.modules.get(name)
    if known is not None and path is not None and getattr(known, "__file__", None) != str(path):
        name = f"{name}_{abs(hash(str(path))) % 10**8}"  # another module has that name
    with quiet(), standing_in() as stand_ins:
        for _ in range(30):
            try:
                return import_once(name, path), sorted(stand_ins.names)
            except InputError:
                raise  # a description that says what is wrong with it
            except ImportError as error:
                lost = missing(error)
                if path is None or not lost or lost in stand_ins.names:
                    raise InputError(f"cannot import {target!r}: {first_line(error)}{at(error)}") from error
                home = beside(path, lost)
                if home is not None and str(home) not in sys.path:
                    sys.path.insert(0, str(home))
                else:
                    stand_ins.add(lost)
            except (Exception, SystemExit) as error:
                reason = f"{type(error).__name__}: {first_line(error)}{at(error)}"
                raise InputError(f"importing {target!r} raised {reason}") from error
    raise InputError(f"cannot import {target!r}: too much of what it imports is not there")


def import_once(name: str, path: Path | None) -> ModuleType:
    importlib.invalidate_caches()
    if path is None or importable(name, path):
        return importlib.import_module(name)
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise InputError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def missing(error: BaseException | None) -> str:
    """The package that could not be found, also where that became another error on its way."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.split(".")[0]
        error = error.__cause__ or error.__context__
    return ""


def importable(name: str, path: Path) -> bool:
    """Would `import name` give this very file?"""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None) == str(path)
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    if "." in name:
        return True  # a package around it: found through the root that was put onto the path
    found = importlib.util.find_spec(name)
    return found is not None and found.origin == str(path)


def beside(path: Path, name: str) -> Path | None:
    """An ancestor of the file that holds a module of this name: code that expects to run from its own root."""
    for folder in list(path.parents)[:5]:
        if (folder / f"{name}.py").is_file() or ((folder / name).is_dir() and any((folder / name).rglob("*.py"))):
            return folder
    return None


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else ""


def at(error: BaseException) -> str:
    line = where(error)
    return f" (at {line})" if line else ""


def named(loaded: Loaded, name: str) -> Any:
    """The object of this name in a module; dots go into classes."""
    found: Any = loaded.module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{loaded.target} has no {name!r}")
        found = getattr(found, part)
    return found
