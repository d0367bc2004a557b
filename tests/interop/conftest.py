"""The way to call commands, as in the tests of the command line."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.cli.conftest import Call, call

__all__ = ["call"]


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    exit_code: int
    stdout: str
    stderr: str


Invoke = Callable[..., Done]


@pytest.fixture
def invoke(call: Call) -> Invoke:
    def invoke(*words: object) -> Done:
        status, out, err = call(*words)
        return Done(status, out.decode(), err)

    return invoke
