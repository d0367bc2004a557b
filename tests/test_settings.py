"""Settings: strict on the way in, faithful on the way back, and errors that name the key."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from clearhead.cli.options import chosen_settings
from clearhead.cli.preset_or_run import chosen_model
from clearhead.errors import InputError
from clearhead.settings import from_dict, merge, parse_assignment, to_dict
from clearhead.training.config import load_recipe


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    size: int
    title: str = "t"
    flag: bool = False
    limit: int | None = 3
    mixed: int | str = 0
    mode: Literal["a", "b", 1] = "a"
    never: Literal[False] = False
    inner: Inner = field(default_factory=Inner)
    pairs: tuple[Inner, ...] = ()
    made: int = field(default=0, init=False)


def test_round_trip() -> None:
    values = {
        "size": 3,
        "title": "x",
        "flag": True,
        "limit": 4,
        "mixed": "word",
        "mode": "b",
        "inner": {"rate": 1, "names": ["p", "q"]},
        "pairs": [],
    }
    settings = from_dict(Outer, values)
    assert settings == Outer(3, "x", True, 4, "word", "b", False, Inner(1.0, ("p", "q")), ())
    assert isinstance(settings.inner.rate, float)  # a whole number may stand for a number
    assert "made" not in to_dict(settings)  # not for the user to set
    assert from_dict(Outer, to_dict(settings)) == settings


def test_none_is_left_out_because_toml_has_no_null() -> None:
    assert "limit" not in to_dict(Outer(1, limit=None))
    assert from_dict(Outer, {"size": 1, "limit": None}).limit is None


def test_dataclasses_pass_through() -> None:
    inner = Inner(0.1)
    assert from_dict(Outer, {"size": 1, "inner": inner}).inner is inner


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "missing key 'size'"),
        ({"size": 1, "tilte": "x"}, "unknown key 'tilte'; did you mean 'title'?"),
        ({"size": 1, "zzzzz": 0}, "unknown key 'zzzzz'; known: flag, inner, limit"),
        ({"size": 1, "made": 1}, "unknown key 'made'"),
        ({"size": "1"}, "size must be a whole number, not '1'"),
        ({"size": 1.5}, r"size must be a whole number, not 1\.5"),
        ({"size": True}, "size must be a whole number, not True"),
        ({"size": 1, "flag": 1}, "flag must be true or false, not 1"),
        ({"size": 1, "title": 5}, "title must be a string, not 5"),
        ({"size": 1, "limit": "x"}, "limit must be a whole number, not 'x'"),
        ({"size": 1, "mode": "c"}, "mode = 'c' is not one of 'a', 'b', 1"),
        ({"size": 1, "mode": True}, "mode = True is not one of"),  # although True == 1
        ({"size": 1, "never": 0}, "never = 0 is not one of"),  # although 0 == False
        ({"size": 1, "inner": 5}, "inner must be a table of settings, not 5"),
        ({"size": 1, "inner": {"rate": "x"}}, "inner.rate must be a number, not 'x'"),
        ({"size": 1, "inner": {"rate": True}}, "inner.rate must be a number, not True"),
        ({"size": 1, "inner": {"raet": 1}}, "unknown key 'inner.raet'; did you mean 'rate'?"),
        ({"size": 1, "inner": {"names": "pq"}}, "inner.names must be a list, not 'pq'"),
        ({"size": 1, "inner": {"names": ["p", 3]}}, r"inner.names\[1\] must be a string, not 3"),
        ({"size": 1, "pairs": [{"rate": 1}, {"x": 1}]}, r"unknown key 'pairs\[1\].x'"),
    ],
    ids=str,
)
def test_refusals_name_the_key(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_dict(Outer, values)


def test_settings_with_tables_in_a_list_survive_a_round_trip() -> None:
    settings = Outer(1, pairs=(Inner(0.1), Inner(0.2, ("x",))))
    values = to_dict(settings)
    assert values["pairs"] == [{"rate": 0.1, "names": []}, {"rate": 0.2, "names": ["x"]}]
    assert from_dict(Outer, values) == settings


def test_merge_goes_table_by_table() -> None:
    base = {"a": 1, "t": {"x": 1, "y": {"z": 2}}}
    assert merge(base, {"t": {"y": {"w": 3}}, "b": 4}) == {"a": 1, "b": 4, "t": {"x": 1, "y": {"z": 2, "w": 3}}}
    assert merge(base, {"t": 5}) == {"a": 1, "t": 5}
    assert base == {"a": 1, "t": {"x": 1, "y": {"z": 2}}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("300", 300), ("1e-3", 1e-3), ("true", True), ("[1, 2]", [1, 2]), ('"a=b"', "a=b"), ("", "")],
        *[("rope", "rope"), ("it is 'so'", "it is 'so'"), ("1\nc = 2", "1\nc = 2")],
    ],
)
def test_the_value_of_set_is_toml_or_else_text_and_white_space_around_it_is_nothing(text: str, value: object) -> None:
    for spelling in (f"a.b={text}", f"a.b= {text} ", f" a . b = {text}"):
        assert parse_assignment(spelling) == {"a": {"b": value}}


@pytest.mark.parametrize("text", ["steps", "=3", " = 3", "a..b=3", ".a=3", "a b=3", "a\nb=3"])
def test_what_is_no_assignment_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(InputError, match=r"--set wants key=value, such as d_model=256 or .*; found"):
        parse_assignment(text)


def test_every_set_takes_the_same_spellings() -> None:
    for spelling in ("kind=rope", "kind= rope", "kind = 'rope'"):
        chosen = chosen_model("tiny", [f"positions.{spelling}"])
        assert chosen.positions.kind == "rope"
        recipe = load_recipe("copy", [f"model.positions.{spelling}"])
        assert recipe.model["positions"] == {"kind": "rope"}
    assert chosen_settings(["top_k= 5", "decoding.top_p =0.5"]) == {"top_k": 5, "top_p": 0.5}
