"""The table `decoding` of a recipe: how a run is decoded unless the caller says otherwise. Training keeps it, decoding
reads it, so it belongs to neither. Imports no torch."""

import typing
from dataclasses import dataclass, fields
from typing import Any, Literal

from clearhead.errors import InputError
from clearhead.ranges import require_numbers
from clearhead.settings import convert, nearest

# more than anyone asks for on purpose; without an end to them, a slip of the finger would take all memory there is
MOST = {"beam_size": 1024, "max_source": 1_000_000, "max_extra": 1_000_000, "max_tokens": 1_000_000}


@dataclass(frozen=True)
class DecodingSettings:
    """By default as in section 6.1 of the paper: beam 4, length penalty 0.6, at most 50 tokens more than its source."""

    beam_size: int = 4  # 1: greedy
    length_penalty: float = 0.6
    length_form: Literal["gnmt", "power"] = "gnmt"
    refill: bool = False  # a finished hypothesis gives its slot away, as in transformers
    max_extra: int = 50  # a translation has at most this many tokens more than its source
    max_source: int = 1024  # longer sources are cut, with a warning

    max_tokens: int = 200  # that a language model writes
    temperature: float = 0.8
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0

    min_length: int = 0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        require_numbers(self, "decoding.")
        for name in ("beam_size", "max_source", "max_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"decoding.{name} must be positive, not {getattr(self, name)}")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise InputError(f"decoding.{name} must be at most {most:,}, not {getattr(self, name):,}")
        if abs(self.length_penalty) > 100:
            raise InputError(f"decoding.length_penalty must be between -100 and 100, not {self.length_penalty}")
        for name in ("max_extra", "temperature", "top_k", "min_length", "no_repeat_ngram"):
            if getattr(self, name) < 0:
                raise InputError(f"decoding.{name} must not be negative, not {getattr(self, name)}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"decoding.top_p must be above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise InputError(f"decoding.min_p must be between 0 and 1, not {self.min_p}")
        if self.repetition_penalty <= 0:
            raise InputError(f"decoding.repetition_penalty must be positive, not {self.repetition_penalty}")

    def changed(self, changes: dict[str, Any]) -> "DecodingSettings":
        """These settings with others in their place; None leaves one as it is."""
        hints = typing.get_type_hints(DecodingSettings)
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for key, value in changes.items():
            if key not in values:
                raise InputError(f"unknown decoding setting {key!r}{nearest(key, list(values))}")
            if value is not None:
                values[key] = convert(hints[key], value, f"decoding.{key}")
        return DecodingSettings(**values)
