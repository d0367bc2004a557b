"""How far the preparation of a large file is: told on a terminal, and nowhere else."""

import io
import sys

import pytest

from clearhead.data.prepare import bar

LARGE = 8 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "size", "shown"),
    [(Terminal(), LARGE, True), (Terminal(), LARGE - 1, False), (io.StringIO(), LARGE, False), (None, LARGE, False)],
)
def test_a_bar_is_for_large_files_on_a_terminal(
    stderr: io.StringIO | None, size: int, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with bar("preparing a.txt", size) as advance:
        advance(size // 2)
    if stderr is not None:
        assert ("preparing a.txt" in stderr.getvalue()) == shown
        assert ("50%" in stderr.getvalue()) == shown
