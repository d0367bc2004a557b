"""How this program was started, so that every command it suggests is one that runs when it is typed here."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def invocation() -> str:
    """`clearhead` where the shell finds this very script, else its path from here, or `python -m clearhead`."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{python()} -m clearhead"
    found = shutil.which("clearhead")
    if not started.is_file() or (found is not None and os.path.samefile(found, started)):
        return "clearhead"
    return from_here(started)


def python() -> str:
    """The interpreter that runs this, by its name if that leads to it."""
    for name in ("python", "python3"):
        # not os.path.samefile: an environment's interpreter is a link to the one it was made from
        if (found := shutil.which(name)) is not None and os.path.abspath(found) == os.path.abspath(sys.executable):
            return name
    return from_here(Path(sys.executable))


def activation() -> str | None:
    """The line after which `clearhead` is a command in this shell; None if it is one already, or there is no such."""
    script = Path(sys.executable).parent / "activate"
    return f"source {from_here(script)}" if invocation() != "clearhead" and script.is_file() else None


def from_here(path: Path) -> str:
    """A path as one would type it: from the folder one stands in if it is below it, quoted where it must be."""
    try:
        below = os.path.relpath(path)
    except FileNotFoundError:  # one stands in a folder that has been removed
        return shlex.quote(str(path))
    if below.startswith(os.pardir):
        return shlex.quote(os.path.abspath(path))
    return shlex.quote(below if os.sep in below else os.path.join(os.curdir, below))  # without one, PATH is searched
