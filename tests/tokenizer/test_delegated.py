"""A vocabulary that is handed to Hugging Face's tokenizers is checked before it is."""

from typing import Any

import pytest

from clearhead.errors import InputError
from clearhead.tokenizer.delegated import check_vocabulary


@pytest.mark.parametrize(
    ("vocabulary", "said"),
    [
        ([], r"a table of tokens and their ids is wanted, not \[\]"),
        ({}, r"a table of tokens and their ids is wanted, not \{\}"),
        ({"a": 0, "b": "1"}, "the id of 'b' is '1', and a whole number is wanted"),
        ({"a": True}, "the id of 'a' is True, and a whole number is wanted"),
        ({"a": -1}, "the id of 'a' is -1, and a whole number is wanted"),
        ({"a": 1 << 24}, "the id of 'a' is 16777216, and a whole number is wanted"),
        ({"a": 3, "b": 3}, "two tokens have the same id"),
    ],
)
def test_what_is_no_vocabulary_is_refused(vocabulary: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"^here: {said}"):
        check_vocabulary(vocabulary, "here")


def test_ids_may_have_gaps() -> None:
    check_vocabulary({"a": 0, "b": (1 << 24) - 1}, "here")
