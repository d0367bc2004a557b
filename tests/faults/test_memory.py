"""Filters hold on to nothing: four times the lines, the same memory, and as many lines out as in."""

from pathlib import Path

import pytest

from bench.million import FILTERS, measured

SLACK = 12 << 20  # bytes by which a peak may move from run to run; what is sent through is more


def hold(folder: Path, name: str, lines: int) -> None:
    _, before, _ = measured(folder, name, lines)
    out, after, _ = measured(folder, name, 4 * lines)
    assert out == 4 * lines
    assert after < before + SLACK


def test_memory_does_not_grow_with_the_lines(tmp_path: Path) -> None:
    hold(tmp_path, "tokenizer encode", 5_000)


@pytest.mark.long
@pytest.mark.parametrize("name", FILTERS)
def test_memory_of_no_filter_grows_with_the_lines(name: str, tmp_path: Path) -> None:
    hold(tmp_path, name, 10_000)
