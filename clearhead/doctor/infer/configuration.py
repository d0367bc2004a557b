"""Configuration objects: found by annotation or by name, or discovered by handing in one that answers what is asked.

Four forms are common: a class with fields (GPTConfig), a method that gives the defaults (get_default_config), a
dictionary (cfg["emb_dim"]), and anything with attributes.
"""

import inspect
import re
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

from torch import nn

from clearhead.doctor.infer import names
from clearhead.doctor.infer.constructor import Plan, parameters, plan_call, required
from clearhead.doctor.sizes import GROUPED

CLASSES = r"Config|Args|Dimensions|Params|Settings"


class Unanswered(Exception):
    """The model asked its configuration for something whose name says nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the configuration is asked for {name!r}, and that name does not tell a value")
        self.name = name


class Asked(dict[str, Any]):
    """A configuration that answers by name, and remembers what it was asked for and how."""

    def __init__(self, base: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__["_base"] = base
        self.__dict__["_code"] = {}  # what was asked, and the answer as code
        self.__dict__["_style"] = ""

    def answer(self, name: str, style: str) -> Any:
        self.__dict__["_style"] = self.__dict__["_style"] or style
        given = self.__dict__["_base"].get(name)
        meaning = names.size(name)
        if meaning is not None and not isinstance(given, bool | str | list | tuple):
            code = names.code(meaning)
            self.__dict__["_code"][name] = code
            return eval(code, dict(GROUPED))
        known, value = names.value(name)
        if name in self.__dict__["_base"] and "dtype" not in name:
            return given
        if "dtype" in name:  # a base in 16 bits could not be compared
            import torch

            self.__dict__["_code"][name] = "torch.float32"
            return torch.float32
        if not known and style != "dict":
            raise AttributeError(name)  # getattr(config, name, default) has its own answer
        # a key that says nothing is most often a switch
        self.__dict__["_code"][name] = repr(value if known else True)
        return value if known else True

    def __missing__(self, name: str) -> Any:
        return self.answer(name, "dict")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.answer(name, "attributes")

    def get(self, name: str, default: Any = None) -> Any:
        return self.answer(name, "dict") if names.size(name) is not None else default

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (names.size(name) is not None or name in self.__dict__["_base"])


def plans(parameter: inspect.Parameter, owner: Any, module: ModuleType) -> Iterator[Plan]:
    """Ways to get a configuration, the surest first. Those that are discovered come last (see `discover`)."""
    default_of = getattr(owner, "get_default_config", None)
    if callable(default_of) and not parameters(default_of):
        yield from defaults(owner, default_of)
    for found, name in classes(parameter, owner, module):
        if parameters(found):
            yield plan_call(found, name, partial(nested, owner=found, module=module))
        else:
            yield attributes(f"{name}()", found, name)


def nested(parameter: inspect.Parameter, part: bool, owner: Any, module: ModuleType) -> Plan | None:
    """A configuration inside a configuration."""
    return None if part else next(plans(parameter, owner, module), None)


def classes(parameter: inspect.Parameter, owner: Any, module: ModuleType) -> list[tuple[type, str]]:
    """Configuration classes that may be meant: the annotated one, then those of the module, the nearest name first."""
    spaces = [module, inspect.getmodule(owner) or module]
    annotated = parameter.annotation
    if isinstance(annotated, str):
        annotated = next((getattr(space, annotated) for space in spaces if hasattr(space, annotated)), None)
    if isinstance(annotated, type) and annotated not in (dict, object, inspect.Parameter.empty):
        return [(annotated, annotated.__name__)]
    if annotated is not inspect.Parameter.empty and annotated is not None and "dict" in str(annotated).lower():
        return []
    found = {
        name: value
        for space in spaces
        for name, value in vars(space).items()
        if isinstance(value, type) and re.search(CLASSES, name) and not name.startswith("_")
    }
    own = getattr(owner, "__name__", "")
    return [
        (value, name) for name, value in sorted(found.items(), key=lambda one: (not one[0].startswith(own), one[0]))
    ]


def defaults(owner: Any, default_of: Any) -> Iterator[Plan]:
    """A configuration that the model hands out itself, with other sizes."""
    call = f"{owner.__name__}.get_default_config()"
    made = default_of()
    yield attributes(call, made, owner.__name__)


def attributes(call: str, made: Any, name: str) -> Plan:
    """Make it, then set its sizes as attributes."""
    fields = {key: value for key, value in (*vars(type(made)).items(), *vars(made).items()) if not key.startswith("_")}
    lines = [f"config = {call}"]
    for key, value in fields.items():
        meaning = names.size(key)
        if callable(value) or isinstance(value, bool | list | tuple | staticmethod | classmethod | property):
            continue
        if meaning is not None and not isinstance(value, str):
            lines.append(f"config.{key} = {names.code(meaning)}")
        elif re.search("model_type|preset", key) and value is not None:
            lines.append(f"config.{key} = None")  # a preset would decide the sizes
    return Plan("config", lines, [name])


def discover(call: Any, parameter: inspect.Parameter, module: ModuleType) -> Plan:
    """Hand in a configuration that answers what it is asked for; what was asked becomes the code."""
    base, base_name = known_dictionary(module)
    asked = Asked(base)
    try:
        call(asked)
    except (KeyError, AttributeError) as error:
        name = error.args[0] if error.args and isinstance(error.args[0], str) else ""
        if name.isidentifier() and not hasattr(asked, name):
            raise Unanswered(name) from error
        raise
    code = asked.__dict__["_code"]
    guessed = {name: value for name, value in code.items() if names.size(name) is None}
    if asked.__dict__["_style"] == "attributes":
        fields = ", ".join(f"{name}={value}" for name, value in code.items())
        return Plan(f"SimpleNamespace({fields})", guessed=guessed)
    entries = ", ".join(f'"{name}": {value}' for name, value in code.items())
    if base_name:
        return Plan(f"{{**{base_name}, {entries}}}", used=[base_name], guessed=guessed)
    return Plan(f"{{{entries}}}", guessed=guessed)


def known_dictionary(module: ModuleType) -> tuple[dict[str, Any], str]:
    """A dictionary of the module that holds at least three sizes: a configuration to start from."""
    for name, value in vars(module).items():
        if isinstance(value, dict) and not name.startswith("__"):
            sizes = [key for key in value if isinstance(key, str) and names.size(key) is not None]
            if len(sizes) >= 3:
                return value, name
    return {}, ""


def part_of(parameter: inspect.Parameter, owner: Any, module: ModuleType) -> Plan | None:
    """A model inside a model (`bert` in BERTLM(bert, vocab_size)): built by the class of its annotation or its name."""
    for name, value in vars(module).items():
        is_model = isinstance(value, type) and issubclass(value, nn.Module) and value is not owner
        if is_model and (parameter.annotation is value or name.lower() == parameter.name.lower().replace("_", "")):
            return plan_call(value, name, partial(nested, owner=value, module=module))
    return None


def wanted(function: Any) -> inspect.Parameter | None:
    """The parameter of a constructor that takes its configuration."""
    from clearhead.doctor.infer.constructor import is_configuration

    given = [one for one in parameters(function) if is_configuration(one)]
    return next((one for one in given if required(one) or one.default is None), None)
