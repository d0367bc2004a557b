"""What the machine refuses (a file, a folder, memory), told in one line that blames the right thing."""

import os
import re

# how torch says it, for memory that is not there and for sizes beyond any memory
_NO_MEMORY = re.compile(
    r"can't allocate memory(?:: you tried to allocate (?P<bytes>\d+) bytes)?|out of memory|"
    r"Storage size calculation overflowed|numel: integer multiplication overflow|Overflow when unpacking long"
)


def refusal(error: Exception) -> str | None:
    """The line for an error of the machine; None for one that is ours, and whose traceback we want to see."""
    if isinstance(error, OSError):
        return _of_system(error)
    if isinstance(error, MemoryError):
        return f"not enough memory{f': {error}' if str(error) else ''}"
    if isinstance(error, RuntimeError) and (found := _NO_MEMORY.search(str(error))):
        wanted = f": {int(found['bytes']):,} bytes were asked for" if found["bytes"] else " for sizes like these"
        return f"not enough memory{wanted}"
    return None


def _of_system(error: OSError) -> str:
    why = error.strerror or str(error)
    if error.filename is not None:
        return f"cannot use {os.fsdecode(error.filename)}: {why}"
    if isinstance(error, FileNotFoundError) and not _working_folder():
        return "the working folder has been removed: change to one that is there"
    return why[:1].lower() + why[1:]


def _working_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True
