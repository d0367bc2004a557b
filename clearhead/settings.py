"""Settings as data: dictionaries (from TOML, JSON or the command line) into frozen dataclasses, strictly.

A misspelt key that is silently ignored costs a training run, so every key must exist and every value must have
the declared type; an error names the key, what was found and the nearest key that does exist.
"""

import dataclasses
import difflib
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from clearhead.errors import InputError

T = TypeVar("T")


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build the dataclass `cls` from `values`; nested dataclasses take nested dictionaries."""
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    arguments = {}
    for key, value in values.items():
        full = f"{where}{key}"
        if key not in names:
            known = getattr(cls, "ELSEWHERE", {}).get(key)  # what other people call it
            raise InputError(f"unknown key {full!r}" + (f"; here it is {known}" if known else nearest(key, names)))
        arguments[key] = convert(hints[key], value, full)
    missing = [
        field.name
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        if field.init
        and field.name not in arguments
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"missing key {where + missing[0]!r}")
    return cls(**arguments)


def nearest(key: str, names: list[str]) -> str:
    """A hint for an unknown key or name: the closest known one, or all of them."""
    close = difflib.get_close_matches(str(key)[:100], names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(names))}"


def convert(hint: Any, value: Any, where: str) -> Any:
    """Check one value against its declared type; an int may stand for a float, a list for a tuple."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        errors = []
        for option in options:
            if option is not type(None):
                try:
                    return convert(option, value, where)
                except InputError as error:
                    errors.append(error)
        raise errors[0]
    if origin is typing.Literal:
        if any(value == option and type(value) is type(option) for option in options):  # 0 is not False here
            return value
        raise InputError(f"{where} = {value!r} is not one of {', '.join(map(repr, options))}")
    if origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(convert(options[0], item, f"{where}[{i}]") for i, item in enumerate(value))
        raise InputError(f"{where} must be a list, not {value!r}")
    if dataclasses.is_dataclass(hint):
        if dataclasses.is_dataclass(value) and isinstance(value, hint):  # type: ignore[arg-type]
            return value
        if isinstance(value, Mapping):
            return from_dict(hint, value, f"{where}.")  # type: ignore[arg-type]
        raise InputError(f"{where} must be a table of settings, not {value!r}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InputError(f"{where} is larger than any number that can be computed with") from None
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise InputError(f"{where} must be {_article(hint)}, not {value!r}")


def _article(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def to_dict(settings: Any) -> dict[str, Any]:
    """The inverse of `from_dict`: plain values, and None left out because TOML has no null."""
    result: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            result[field.name] = to_dict(value)
        elif isinstance(value, tuple):
            result[field.name] = [to_dict(item) if dataclasses.is_dataclass(item) else item for item in value]
        elif value is not None and field.init:
            result[field.name] = value
    return result


def parse_assignment(text: str) -> dict[str, Any]:
    """What `--set` takes: `positions.kind=rope` as {"positions": {"kind": "rope"}}. The value is TOML, or else text."""
    key, equals, written = (part.strip() for part in text.partition("="))
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names):
        raise InputError(f"--set wants key=value, such as d_model=256 or positions.kind=rope; found {text!r}")
    try:
        (value,) = tomllib.loads(f"value = {written}").values()
    except (ValueError, RecursionError):  # no TOML, or several lines of it, or brackets without end
        value = written
    for name in reversed(names):
        value = {name: value}
    return value


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, table by table."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
