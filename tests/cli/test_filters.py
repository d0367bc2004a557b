"""Filters on lines and files that nobody would call text: in bounds, in order, and nothing raw to the terminal."""

import gzip
import json
import os
import pty
from pathlib import Path

import numpy
import pytest

from clearhead import reading
from clearhead.cli import filter as filters
from tests.cli.conftest import Call
from tests.decoding.models import small_run

EVIL = "\x1b[2J\x9b31m\x07"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("runs") / "encoder", "encoder", decoding={"max_source": 48})


def test_a_line_too_long_is_cut_with_a_warning(run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s").write_bytes(b"a cat\n" + b"the cat " * (5 << 18) + b"\na dog\n")
    status, out, err = call("translate", run, tmp_path / "s")
    lines = out.split(b"\n")
    assert (status, len(lines)) == (0, 4)
    assert "1 line longer than 8 MiB: the rest was left out (first: line 2)" in err
    (tmp_path / "s").write_bytes(b"a cat\n" + b"the cat " * 1024 + b"\na dog\n")
    assert call("translate", run, tmp_path / "s")[1].split(b"\n") == lines


def test_a_cut_line_does_not_end_within_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "LONGEST_LINE", 4)
    lines = filters.Filter(None)
    assert lines._clean("aéé€".encode()) == (1, "aé")
    assert list(lines.odd) == [filters.TOO_LONG]


def test_an_endless_line_is_refused(run: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "NO_LINES", 1 << 24)
    status, _, err = call("translate", run, "/dev/zero")
    assert (status, err.count("\n")) == (2, 1)
    assert "cannot read /dev/zero: more than 16,777,216 bytes without a line end" in err


def test_a_tokenizer_refuses_a_line_too_long_by_its_number(
    run: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE", 100)
    (tmp_path / "s").write_bytes(b"a cat\n" + b"x" * 1000 + b"\na dog\n")
    status, out, err = call("tokenizer", "encode", run, tmp_path / "s")
    assert status == 2
    assert [bool(line) for line in out.split(b"\n")] == [True, False, True, False]
    assert "line 2: longer than" in err
    assert "1 of 3 lines could not be used" in err


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"the cat\n" * 1000, mtime=0)[:-12], b"\x1f\x8b", b"\x1f\x8b\x08\0" * 9],
    ids=["cut", "two bytes", "headers"],
)
def test_damaged_gzip_is_refused_by_name(content: bytes, run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s.gz").write_bytes(content)
    status, out, err = call("score", run, "--source", tmp_path / "s.gz", "--target", tmp_path / "s.gz")
    assert (status, out) == (2, b"")
    assert f"{tmp_path / 's.gz'}: cannot read it: damaged gzip" in err


def test_scores_come_line_by_line_and_nan_for_what_cannot_be_read(text_run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s").write_text("the cat\n\n" + "sat " * 3000 + "\na dog\n")
    status, out, _ = call("score", text_run, "--text", tmp_path / "s")
    assert status == 0
    assert len(out.split()) == 4
    (tmp_path / "t").write_text("the cat\n")
    alone = call("score", text_run, "--text", tmp_path / "t")[1]
    assert float(out.split()[0]) == pytest.approx(float(alone), abs=1e-4)


def test_a_target_too_long_gives_nan_and_a_warning(run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s").write_text("a cat\na cat\n")
    (tmp_path / "t").write_text("x " * 9000 + "\na dog\n")
    status, out, err = call("score", run, "--source", tmp_path / "s", "--target", tmp_path / "t")
    assert (status, out.split()[0]) == (0, b"nan")
    assert float(out.split()[1]) < 0
    assert "1 line could not be scored and gave nan (first: line 1" in err
    out = call("score", run, "--source", tmp_path / "s", "--target", tmp_path / "t", "--json")[1]
    assert json.loads(out.split(b"\n")[0]) == {"log_prob": None, "tokens": [], "log_probs": []}


def test_vectors_are_written_row_by_row(encoder: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s").write_text("the cat\n\na dog\n")
    rows = [json.loads(line) for line in call("encode", encoder, tmp_path / "s", "--mean")[1].splitlines()]
    assert call("encode", encoder, tmp_path / "s", "--mean", "-o", tmp_path / "x.npy")[0] == 0
    found = numpy.load(tmp_path / "x.npy")
    assert found.dtype == numpy.float32
    numpy.testing.assert_array_equal(found[[0, 2]], numpy.array([rows[0], rows[2]], dtype=numpy.float32))
    assert numpy.isnan(found[1]).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "x.npy"]


def test_messages_and_logs_hold_no_control_characters(run: Path, tmp_path: Path, call: Call) -> None:
    path = tmp_path / f"x{EVIL}.txt"
    for words in (
        ("translate", run, path),
        ("tokenizer", "info", path),
        ("tokenizer", "explain", "a", "-t", path),
        ("score", run, "--source", path, "--target", path),
    ):
        status, _, err = call(*words)
        assert status == 2
        assert filters.visible(err, keep="\n") == err, err
        assert "x\\u001b[2J" in err


def test_a_terminal_is_not_given_what_it_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as screen:
        monkeypatch.setattr("sys.stdout", screen)
        filters.Filter(None).write([f"a{EVIL}\tb"])
    assert os.read(ours, 1000).strip() == b"a\\u001b[2J\\u009b31m\\u0007\tb"
    os.close(ours)


def test_a_pipe_is_given_the_text_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    filters.Filter(None).write([f"a{EVIL}\tb"])
    assert capfdbinary.readouterr().out == f"a{EVIL}\tb\n".encode()
