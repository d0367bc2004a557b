"""One browser for all tests of the page."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.explore.browser import open_chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    yield from open_chromium()
