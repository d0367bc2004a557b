"""Where user code raised: the last line of a traceback that is theirs, not torch's and not the doctor's."""

import linecache
import os
from pathlib import Path
from types import TracebackType

OURS = str(Path(__file__).resolve().parents[1])


def theirs(file: str) -> bool:
    inside = file.startswith(OURS) and f"{os.sep}hosts{os.sep}" not in file
    return not (inside or file.startswith("<") or f"{os.sep}importlib{os.sep}" in file or is_torch(file))


def is_torch(file: str) -> bool:
    return f"{os.sep}site-packages{os.sep}torch{os.sep}" in file


def where(error: BaseException) -> str:
    """file:line: code, or nothing if no line of the traceback is the user's."""
    traceback: TracebackType | None = error.__traceback__
    line = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if theirs(file):
            code = linecache.getline(file, traceback.tb_lineno).strip()
            line = f"{shown(file)}:{traceback.tb_lineno}{': ' + code if code else ''}"
        traceback = traceback.tb_next
    return line


def shown(file: str) -> str:
    """A file as one would type it: relative to where one stands, if it lies below."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def told(error: BaseException) -> str:
    """An error in one line, with the place where it was raised."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
    place = where(error)
    return f"{type(error).__name__}: {reason}{f' (at {place})' if place else ''}"
