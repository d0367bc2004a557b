"""One process that has torch ready serves all tests of checks."""

from collections.abc import Iterator

import pytest

from clearhead.learn.process import Checker


@pytest.fixture(scope="session")
def checker() -> Iterator[Checker]:
    with Checker() as checker:
        yield checker
