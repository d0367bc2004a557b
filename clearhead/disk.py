"""Files that appear whole or not at all: written beside their place, forced to the disk, then renamed into it.

A rename is atomic, so a reader finds the old file or the new one, never half of one. Forced to the disk first, or after
a power cut the new name could stand for nothing.
"""

import os
from pathlib import Path

from clearhead.errors import InputError


def write_whole(path: Path, content: str | bytes) -> None:
    """Put a file in its place, or replace the one that is there; text as UTF-8."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_synced(temporary, content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """A rename is safe from a power cut only once the folder that holds the name is on the disk too."""
    if os.name == "nt":  # where folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
