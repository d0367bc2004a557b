"""A folder that appears whole or not at all: filled under another name, forced to the disk, then renamed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clearhead.disk import beside, make_folder, put_in_place, remove, sync, sync_folder
from clearhead.errors import InputError


def refuse_folder(folder: Path, force: bool, run: Path) -> None:
    """What somebody made is not overwritten unasked, and a run never."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise InputError(f"{folder}: {place} is a file, a folder is wanted")
    resolved, source = folder.resolve(), run.resolve()
    if resolved == source or resolved in source.parents:
        raise InputError(f"{folder} holds the run itself: choose another folder to export to")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise InputError(f"{folder} is not empty: choose another folder, or replace an earlier export with --force")


@contextmanager
def appearing_whole(folder: Path, force: bool) -> Iterator[Path]:
    """A folder to write into, which becomes `folder` at the end; if anything fails, all is as it was."""
    made = [place for place in (folder.parent, *folder.parent.parents) if not place.exists()]
    make_folder(folder.parent)
    temporary = beside(folder)
    remove(temporary)
    try:
        temporary.mkdir()
        yield temporary
        if force:
            refuse_strangers(folder, temporary)
        for path in temporary.rglob("*"):
            sync(path)
        sync_folder(temporary)
        put_in_place(temporary, folder)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        remove(temporary)
        for place in made:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()


def refuse_strangers(folder: Path, new: Path) -> None:
    """The old folder goes as a whole: so it must hold nothing but what the new one has in its place."""
    if folder.is_dir():
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if not (new / name).exists():
                raise InputError(
                    f"{folder} also holds {name}, which this export would not write: choose another folder"
                )
