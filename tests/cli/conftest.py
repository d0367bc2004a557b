"""Two small runs that the commands are tried on, and the way to call them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli.main import main
from tests.decoding.models import small_run

Call = Callable[..., tuple[Any, bytes, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Status, stdout and stderr of `clearhead words…`, run in this process."""

    def call(*words: object) -> tuple[Any, bytes, str]:
        monkeypatch.setattr(sys, "argv", ["clearhead", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfdbinary.readouterr()
        return ended.value.code or 0, out, err.decode()

    return call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"max_source": 48, "max_extra": 2, "beam_size": 2}
    return small_run(tmp_path_factory.mktemp("runs") / "pairs", "encoder-decoder", decoding=settings)


@pytest.fixture(scope="module")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data: dict[str, Any] = {"data": {"text": "x", "documents": "line"}, "decoding": {"max_tokens": 4, "max_source": 48}}
    return small_run(tmp_path_factory.mktemp("runs") / "text", "decoder", **data)
