"""Files appear whole or not at all, whatever happens while they are written."""

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from clearhead import disk
from clearhead.disk import exchanged, locked, put_in_place, write_whole
from clearhead.errors import InputError


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    target = tmp_path / "ä.txt"
    for content in ("first ✓", b"\x00\xff"):
        write_whole(target, content)
        assert target.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [path.name for path in tmp_path.iterdir()] == ["ä.txt"]


@pytest.mark.parametrize("fault", ["fsync", "replace"])
def test_a_failed_write_leaves_what_was_there_and_no_rest(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "tokenizer.json"
    target.write_text("what was there before")

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fault, full)
    with pytest.raises(InputError, match=r"cannot write .*tokenizer\.json: No space left on device"):
        write_whole(target, "half")
    assert target.read_text() == "what was there before"
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_the_bytes_are_on_the_disk_before_they_get_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def noted(*given: object, name: str = name, real: Any = real) -> object:
            order.append(name)
            return real(*given)

        monkeypatch.setattr(os, name, noted)
    write_whole(tmp_path / "x", "content")
    assert order == ["fsync", "replace", "fsync"]  # the file, its name, the folder that holds the name


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*nowhere/x: No such file or directory"):
        write_whole(tmp_path / "nowhere" / "x", "content")


def folder(path: Path, content: str) -> Path:
    path.mkdir()
    (path / "x").write_text(content)
    return path


def test_one_of_two_folders_is_always_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, place = folder(tmp_path / "new", "new"), folder(tmp_path / "place", "old")
    renamed = []
    monkeypatch.setattr(os, "rename", lambda *names: renamed.append(names))
    put_in_place(new, place)
    assert renamed == []  # they change places in one step, and the old one goes
    assert (place / "x").read_text() == "new"
    assert os.listdir(tmp_path) == ["place"]


def test_where_names_cannot_change_places_the_old_one_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "exchanged", lambda one, other: False)
    place = folder(tmp_path / "place", "old")
    put_in_place(folder(tmp_path / "new", "new"), place)
    assert (place / "x").read_text() == "new"
    assert os.listdir(tmp_path) == ["place"]
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "nothing", place)
    assert (place / "x").read_text() == "new"
    assert os.listdir(tmp_path) == ["place"]


def test_an_exchange_that_the_disk_refuses_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No such file or directory.*place"):
        exchanged(tmp_path / "nothing", folder(tmp_path / "place", "old"))


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("of one that was killed")
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"{os.getpid()} ")
    assert os.listdir(tmp_path) == []


def test_a_lock_on_a_file_that_lost_its_name_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking it, the one who held it may have ended and removed it, and a third begun anew."""
    real, calls = fcntl.flock, []

    def late(handle: int, how: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            (tmp_path / ".lock").unlink()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(tmp_path):
        assert len(calls) == 2
        monkeypatch.undo()
        with pytest.raises(InputError, match=f"is in use by process {os.getpid()}"), locked(tmp_path):
            pass


def test_a_lock_is_held_until_the_end_and_by_one_alone(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(InputError, match=rf"{tmp_path} is in use by process {os.getpid()}: wait"), locked(tmp_path):
            pass
        (tmp_path / ".lock").write_text("hostile \x1b[2J words")
        with pytest.raises(InputError, match=f"{tmp_path} is in use by another process: wait"), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass
