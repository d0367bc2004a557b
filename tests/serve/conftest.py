"""One server for all tests that leave it running."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.processes import Served, serving, write_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_runs(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def served(runs: list[Path]) -> Iterator[Served]:
    with serving(runs, "--queue", "1000") as made:
        yield made
        assert "Traceback" not in made.said()
