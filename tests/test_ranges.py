"""No setting of any table takes a nan, an infinity, or a number that no tensor can count."""

import dataclasses
import math
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from clearhead.data.settings import DataSettings, TokenizerSettings
from clearhead.decoding_settings import DecodingSettings
from clearhead.errors import InputError
from clearhead.model.config import Dropout, Embedding, Head, ModelConfig, Norm, Positions
from clearhead.ranges import MOST_THREADS
from clearhead.training.config import TrainingSettings

TABLES: dict[Any, dict[str, Any]] = {
    TrainingSettings: {},
    DataSettings: {"text": "x"},
    TokenizerSettings: {},
    DecodingSettings: {},
    ModelConfig: {"vocab_size": 10},
    **{table: {} for table in (Embedding, Positions, Norm, Dropout, Head)},
}


def numbers() -> Iterator[tuple[Any, str, Any]]:
    for table in TABLES:
        hints = typing.get_type_hints(table)
        for field in dataclasses.fields(table):
            kinds = {hints[field.name], *typing.get_args(hints[field.name])}
            if float in kinds:
                yield from ((table, field.name, value) for value in (math.nan, math.inf, -math.inf))
            elif int in kinds:
                yield from ((table, field.name, value) for value in (10**30, -(10**30)))


@pytest.mark.parametrize(("table", "name", "value"), list(numbers()), ids=str)
def test_a_setting_is_a_number_that_can_be_counted(table: Any, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"\b{name}\b"):
        table(**{**TABLES[table], name: value})


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        *((TrainingSettings, name, value) for name in ("peak", "factor", "epsilon") for value in (0.0, -1.0)),
        *((TrainingSettings, name, 2.0) for name in ("final",)),
        (TrainingSettings, "threads", MOST_THREADS + 1),
        (TokenizerSettings, "vocab_size", 0),
        (DecodingSettings, "beam_size", 2000),
        (DecodingSettings, "length_penalty", 1e9),
        (Embedding, "segments", -1),
        (Head, "classes", -1),
    ],
    ids=str,
)
def test_a_setting_out_of_its_range_is_refused_by_name(table: Any, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"\b{name} must "):
        table(**{name: value})
