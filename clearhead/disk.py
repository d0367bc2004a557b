"""Files that appear whole or not at all: written beside their place, forced to the disk, then renamed into it.

A rename is atomic, so a reader finds the old file or the new one, never half of one. Forced to the disk first, or after
a power cut the new name could stand for nothing. What a killed process leaves is its temporary, `.name.PID`, which says
whose it was. Everything that the disk refuses becomes an `InputError` that names the file.
"""

import contextlib
import ctypes
import errno
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from clearhead.errors import InputError

LOCK = ".lock"


def beside(path: Path) -> Path:
    """Where this process writes what will be renamed to `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def write_whole(path: Path, content: str | bytes) -> None:
    """Put a file in its place, or replace the one that is there; text as UTF-8."""
    temporary = beside(path)
    try:
        write_synced(temporary, content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        remove(temporary)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """A rename is safe from a power cut only once the folder that holds the name is on the disk too."""
    if os.name != "nt":  # where folders cannot be opened
        sync(path)


def sync(path: Path) -> None:
    """Wait until the disk has what was written to a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """A folder and those above it, unless they are there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror or error}") from None


def put_in_place(new: Path, path: Path) -> None:
    """Rename a folder to `path`. What stands there changes places with it, in one step where the system knows how, so
    that one of the two is always there; elsewhere it has to make room first."""
    old = beside(path.with_name(f"old.{path.name}"))
    if not os.path.lexists(path):
        os.rename(new, path)
    elif not exchanged(new, path):
        os.rename(path, old)
        try:
            os.rename(new, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.rename(old, path)
            raise
    sync_folder(path.parent)
    for gone in (new, old):
        remove(gone)


def exchanged(one: Path, other: Path) -> bool:
    """Let two names change places at once; False where that cannot be done (not Linux, or not this file system)."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    sys.audit("os.rename", one, other, -1, -1)  # which whoever follows our renames would hear from os.rename
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(one), here, os.fsencode(other), both) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(other))


def remove(path: Path) -> None:
    """Remove a file or a folder that nobody needs; if that fails, so be it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def clear_temporaries(folder: Path, names: re.Pattern[str]) -> None:
    """Remove files and folders of such names whose process, the first group of the name, is no more."""
    for rest in folder.glob(".*"):
        found = names.fullmatch(rest.name)
        if found and not alive(int(found[1])):
            remove(rest)


# ---- one at a time -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold a folder for this process alone; whoever holds it is an error, or is waited for. The lock is the system's
    and ends with the process, however that ends; the file only says who holds it. It is removed at the end, so whoever
    opened it before that must look again: a lock on a file that has lost its name keeps nobody out."""
    try:
        import fcntl
    except ImportError:  # a system without flock
        yield
        return
    path = folder / LOCK
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            who = holder(handle)
            os.close(handle)
            raise InputError(f"{folder} is in use by {who}: wait for it or end it, or choose another folder") from None
        except OSError:  # a file system without locks: nothing to hold on to, and no reason to refuse work
            break
        if named(handle, path):
            break
        os.close(handle)
    try:
        with contextlib.suppress(OSError):  # only a name for the others' message
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()} {platform.node()}\n".encode())
        yield
    finally:
        if named(handle, path):
            remove(path)
        os.close(handle)


def named(handle: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def holder(handle: int) -> str:
    """Who wrote their name into a lock."""
    number, _, machine = os.pread(handle, 256, 0).decode("utf-8", "replace").partition(" ")
    if not number.isdecimal():
        return "another process"
    machine = "".join(letter for letter in machine.strip() if letter.isprintable())
    return f"process {number}" + (f" on {machine}" if machine and machine != platform.node() else "")


def alive(process: int) -> bool:
    """Whether another process of this number runs on this machine."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
