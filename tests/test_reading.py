"""Files that are not what they seem: each is refused in one line that names it, in bounded memory, without a wait."""

import gzip
import io
import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead import reading
from clearhead.data import files
from clearhead.errors import InputError, visible
from clearhead.reading import lines_of, opened_text, parse_json, parse_toml, read_whole


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_whole(tmp_path / "pipe") == b""


def test_a_pipe_with_a_writer_is_read_to_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # so that the writer finds one
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.write(writer, b"one ")

    def finish() -> None:
        os.write(writer, b"two")
        os.close(writer)

    threading.Timer(0.05, finish).start()
    os.set_blocking(reader, True)
    assert read_whole(f"/dev/fd/{reader}") == b"one two"
    os.close(reader)


@pytest.mark.parametrize(
    ("name", "why"),
    [("/dev/zero", "a device"), (".", "a folder"), ("nowhere", "No such file"), ("a\0b", "null byte")],
)
def test_what_is_no_file_is_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(InputError, match=f"cannot read .*: .*{why}"):
        read_whole(name)


def test_a_pipe_is_refused_where_only_a_file_will_do(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"cannot read .*pipe: it is a pipe"):
        read_whole(tmp_path / "pipe", pipes=False)


def test_a_file_beyond_its_bound_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(InputError, match="sparse: it has 8,796,093,022,208 bytes"):
        read_whole(tmp_path / "sparse")
    (tmp_path / "small").write_bytes(b"12345")
    assert read_whole(tmp_path / "small", 5) == b"12345"
    with pytest.raises(InputError, match="5 bytes or more, such a file may have 4"):
        read_whole(tmp_path / "small", 4)


def test_gzip_that_grows_beyond_all_text_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "UNPACKED", 1 << 20)
    monkeypatch.setattr(files, "CHECKED", 1 << 16)
    text = os.urandom(1 << 19).hex()
    (tmp_path / "x.gz").write_bytes(gzip.compress(text.encode()))
    assert "".join(files.text_blocks(tmp_path / "x.gz")) == text
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"a a\n" * (1 << 24)))
    for read in (files.text_blocks, files.raw_lines):
        with pytest.raises(InputError, match=r"bomb\.gz: its [\d,]+ bytes of gzip unpack to more than"):
            list(read(tmp_path / "bomb.gz"))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(text.encode())[:-100])
    with pytest.raises(InputError, match=r"cut\.gz: cannot read it: damaged gzip"):
        list(files.text_blocks(tmp_path / "cut.gz"))


def test_lines_are_unpacked_as_they_are_read(tmp_path: Path) -> None:
    packed = gzip.compress(b"one\ntwo\n" * 10_000)
    (tmp_path / "x.gz").write_bytes(packed)
    with opened_text(tmp_path / "x.gz") as file:
        assert list(lines_of(file, "x")) == [(b"one", True), (b"two", True)] * 10_000
    (tmp_path / "x.gz").write_bytes(packed[: len(packed) // 2])
    with (
        pytest.raises(InputError, match=r"x\.gz: cannot read it: damaged gzip"),
        opened_text(tmp_path / "x.gz") as file,
    ):
        list(lines_of(file, "x"))


@given(st.lists(st.sampled_from([b"", b"a", b"\r", b"b\r", "ü\u2028".encode(), b"\xff", b"long line"])), st.booleans(),
       st.integers(1, 12))  # fmt: skip
def test_lines_are_the_same_wherever_blocks_end(lines: list[bytes], ended: bool, size: int) -> None:
    content = b"\n".join(lines) + b"\n" * ended
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", size)
        patch.setattr(files, "MOST_BROKEN", 1.0)
        (Path(folder) / "x").write_bytes(content)
        if not content:
            with pytest.raises(InputError, match="the file is empty"):
                list(files.raw_lines(Path(folder) / "x"))
            return
        expected = [line.removesuffix(b"\r") for line in content.removesuffix(b"\n").split(b"\n")]
        assert list(files.raw_lines(Path(folder) / "x")) == expected
        found = list(files.some_lines(Path(folder) / "x", strict=False))
        assert found == [None if b"\xff" in line else line.decode() for line in expected]


def test_a_line_too_long_for_data_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 10)
    for size in (1, 4, 100):
        monkeypatch.setattr(files, "BLOCK", size)
        for tail in (b"", b"\n", b"\nlast"):
            (tmp_path / "x").write_bytes(b"0123456789\nb\n0123456789a" + tail)
            with pytest.raises(InputError, match="x, line 3: longer than"):
                list(files.raw_lines(tmp_path / "x"))
    (tmp_path / "x").write_bytes(b"0123456789\nb\n0123456789")
    assert len(list(files.raw_lines(tmp_path / "x"))) == 3


def test_a_line_too_long_is_cut_and_the_next_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE", 10)
    found = list(lines_of(io.BytesIO(b"0123456789\n0123456789a\n" + b"x" * 100 + b"\nlast"), "x"))
    assert found == [(b"0123456789", True), (b"0123456789", False), (b"x" * 10, False), (b"last", True)]


def test_a_file_without_line_ends_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "NO_LINES", 1 << 22)
    with open("/dev/zero", "rb") as endless, pytest.raises(InputError, match=r"/dev/zero: more than 4,194,304 bytes"):
        list(lines_of(endless, "/dev/zero"))


@pytest.mark.parametrize("parse", [parse_json, parse_toml])
@pytest.mark.parametrize(
    "content", [b"a = " + b"[" * 100_000, b"[" * 100_000, b"a = " + b"9" * 5000, b"9" * 5000, b"\xff", b"{", b"\0"]
)
def test_hostile_settings_are_one_line_with_the_file(parse: object, content: bytes) -> None:
    with pytest.raises(InputError, match=r"^here is not ") as refused:
        parse(content, "here")  # type: ignore[operator]
    assert "\n" not in str(refused.value)


def test_messages_write_control_characters_out() -> None:
    evil = "a\x1b[2J\x9b31m\x07\r\nb\tc\x7f\udc80"
    assert str(InputError(evil)) == "a\\u001b[2J\\u009b31m\\u0007\\u000d\\u000ab\\u0009c\\u007f\\udc80"
    assert visible("ü√日\u2028", keep="") == "ü√日\u2028"
    assert visible("a\tb\n\x1b", keep="\n\t") == "a\tb\n\\u001b"
