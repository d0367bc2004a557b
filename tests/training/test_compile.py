"""Whether torch.compile works is found out by trying, and what it says when it does not is passed on."""

from typing import Any

import pytest
import torch

from clearhead.training.compile import cannot_compile

CPU = torch.device("cpu")


def test_where_it_works_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    assert cannot_compile(CPU) == ""


@pytest.mark.parametrize(
    ("message", "said"), [("\n  no compiler \n at all", "no compiler"), ("", "RuntimeError")], ids=["words", "none"]
)
def test_the_reason_is_the_first_line_or_the_kind_of_error(
    message: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(function: Any) -> Any:
        raise RuntimeError(message)

    monkeypatch.setattr(torch, "compile", compile)
    assert cannot_compile(CPU) == said
