"""Files appear whole or not at all, whatever happens while they are written."""

import os
from pathlib import Path
from typing import Any

import pytest

from clearhead.disk import locked, read_bytes, write_whole
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


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("nothing", "no file .*nothing"),
        ("", "cannot read .*: it is a folder"),
        ("pipe", "cannot read .*pipe: it is not a regular file"),  # which would wait for ever
    ):
        with pytest.raises(InputError, match=message):
            read_bytes(tmp_path / name)


def test_a_lock_is_held_until_the_end_and_by_one_alone(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(InputError, match=rf"{tmp_path} is in use by process {os.getpid()}: wait"), locked(tmp_path):
            pass
        (tmp_path / ".lock").write_text("hostile \x1b[2J words")
        with pytest.raises(InputError, match=f"{tmp_path} is in use by another process: wait"), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass
