"""What a request may hold, written down once: a field of a dataclass carries its range and a sentence. Requests are
checked against it and the OpenAPI description is made of it, so that the two cannot disagree."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from clearhead.errors import InputError
from clearhead.settings import from_dict

T = TypeVar("T")
KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", dict: "object"}


def asked(
    says: str,
    default: Any = dataclasses.MISSING,
    *,
    least: float | None = None,  # of a number
    most: float | None = None,
    count: tuple[int, int] | None = None,  # of the entries of a list, or of a table
    example: Any = None,
) -> Any:
    """A field: its sentence, its default and its range."""
    rules = {"says": says, "least": least, "most": most, "count": count, "example": example}
    return dataclasses.field(default=default, metadata=rules)


def read(cls: type[T], values: Mapping[str, Any]) -> T:
    """A request of what was sent, or an InputError that names the key."""
    made = from_dict(cls, values)
    for field in dataclasses.fields(made):  # type: ignore[arg-type]
        _check(field.name, getattr(made, field.name), field.metadata)
    return made


def _check(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    least, most, count = rules.get("least"), rules.get("most"), rules.get("count")
    if isinstance(value, tuple | dict) and count is not None and not count[0] <= len(value) <= count[1]:
        wanted = f"from {count[0]} to {count[1]} entries" if count[1] else "no entries"
        raise InputError(f"{name} must have {wanted}, not {len(value)}")
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            _check(f"{name}[{index}]", item, rules)
    if isinstance(value, int | float) and not isinstance(value, bool):
        low = least is not None and not value >= least  # a nan is neither below nor above
        high = most is not None and not value <= most
        if low or high:
            wanted = f"{least:g}" if least == most else f"from {least:g} to {most:g}"
            raise InputError(f"{name} must be {wanted}, not {value if abs(value) < 1e18 else 'that large'}")


def schema(cls: Any) -> dict[str, Any]:
    """The JSON schema of a request."""
    hints, properties, required = typing.get_type_hints(cls), {}, []
    for field in dataclasses.fields(cls):
        rules = field.metadata
        properties[field.name] = _of(hints[field.name], rules) | {"description": rules.get("says", "")}
        if rules.get("example") is not None:
            properties[field.name]["examples"] = [rules["example"]]
        if field.default is dataclasses.MISSING:
            required.append(field.name)
    made: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return made | ({"required": required} if required else {})


def _of(hint: Any, rules: Mapping[str, Any]) -> dict[str, Any]:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(option, rules) for option in options]}
    if origin is typing.Literal:
        return {"enum": list(options)}
    if origin is tuple:
        count = rules.get("count")
        bounds = {} if count is None else {"minItems": count[0], "maxItems": count[1]}
        return {"type": "array", "items": _of(options[0], rules)} | bounds
    if dataclasses.is_dataclass(hint):
        return schema(hint)
    made: dict[str, Any] = {"type": KINDS[hint]}
    if hint in (int, float):
        made |= {
            key: rules[name] for key, name in (("minimum", "least"), ("maximum", "most")) if rules.get(name) is not None
        }
    if hint is dict and rules.get("count") is not None:
        made["maxProperties"] = rules["count"][1]
    return made
