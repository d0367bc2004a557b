"""Filters hold on to nothing: five times the lines, the same memory, and as many lines out as in."""

import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.million import FILTERS, measured
from clearhead.cli.filter import Filter
from clearhead.reading import lines_of
from clearhead.tokenizer import train

SLACK = 4 << 20  # bytes by which memory may move from one moment to another


def by_filter(path: Path) -> int:
    return sum(len(lines) for lines in Filter(path))


def by_lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in lines_of(file, path))


@pytest.mark.parametrize("read", [by_filter, by_lines_of])
def test_no_line_that_was_read_is_kept(read: Callable[[Path], int], tmp_path: Path) -> None:
    """Counted by Python itself, so that nothing else in this process can hide it."""
    with (tmp_path / "many.txt").open("w") as file:
        file.writelines(f"{n:1000}\n" for n in range(8_000))
    tracemalloc.start()
    try:
        assert read(tmp_path / "many.txt") == 8_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20  # of 8 MB


def growth(words: list[str], line: str, lines: int) -> int:
    """Bytes that `clearhead words…` takes more after five times the lines. Fed by hand, because the peak is
    that of loading, which gives some 10 MB back: lines that are kept would hide in there."""
    command = [sys.executable, "-m", "clearhead", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        taken = []
        for count in (lines, 4 * lines):
            feeding = threading.Thread(target=process.stdin.write, args=((line + "\n").encode() * count,))
            feeding.start()
            for _ in range(count - 100):  # the last ones may be with us, and not yet sent
                assert process.stdout.readline().endswith(b"\n")
            feeding.join()
            pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
            taken.append(int(pages) * os.sysconf("SC_PAGE_SIZE"))
        process.stdin.close()
        assert len(process.stdout.readlines()) == 200
    assert process.returncode == 0
    return taken[1] - taken[0]


def test_memory_does_not_grow_with_the_lines(tmp_path: Path) -> None:
    word = "a" * 512  # one token, so that much text is little work
    tokenizer = train([f"{word} " * 9], 270, workers=1)
    tokenizer.save(tmp_path / "tokenizer.json")
    line = f"{word} " * 10
    assert len(tokenizer.encode(line)) < 25
    assert growth(["tokenizer", "encode", str(tmp_path)], line, 2_000) < SLACK  # of 40 MB


@pytest.mark.long
@pytest.mark.parametrize("name", FILTERS)
def test_as_many_lines_come_out_as_went_in(name: str, tmp_path: Path) -> None:
    assert measured(tmp_path, name, 10_000)[0] == 10_000
