"""How to build a small model: the call of a constructor or factory, written as code, from its signature.

Sizes get the doctor's variables, by their names; what has a default keeps it; what is required and says nothing is
told to the user. A configuration object is a constructor too (see configuration.py).
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clearhead.doctor.infer import names

ORDER = ("vocab", "width", "heads", "kv_heads", "layers", "max_length", "dropout")
CONFIGURATION = r"config|^cfg$|^conf$|^args$|params$|^hps$|^dims$|^opts?$|options$|model_args|settings"


class Unknown(Exception):
    """An argument for which nothing can be guessed."""

    def __init__(self, owner: str, argument: str) -> None:
        super().__init__(f"{owner} needs {argument}, and its name does not tell a value")
        self.owner, self.argument = owner, argument


@dataclass
class Plan:
    """Code that builds something, and what it stands on."""

    code: str  # an expression
    lines: list[str] = field(default_factory=list)  # statements before it
    used: list[str] = field(default_factory=list)  # names of the user's module that it needs
    padding: dict[str, int] = field(default_factory=dict)  # arguments that are ids of padding
    guessed: dict[str, str] = field(default_factory=dict)  # required arguments that are no sizes: value as code
    bare: list[str] = field(default_factory=list)  # parameters that the constructor leaves uninitialised

    def sizes(self) -> list[str]:
        """The doctor's sizes that the code uses, in their order."""
        text = "\n".join([*self.lines, self.code])
        return [size for size in ORDER if re.search(rf"\b{size}\b(?!\s*=[^=])", text)]

    def take(self, other: "Plan") -> None:
        """Also stand on what another plan stands on."""
        self.lines += other.lines
        self.used += [name for name in other.used if name not in self.used]
        self.padding |= other.padding
        self.guessed |= other.guessed


# how to make what an argument wants: a configuration, or (True) a part of the model that has a class of its own
Configure = Callable[[inspect.Parameter, bool], Plan | None]


def parameters(function: Any) -> list[inspect.Parameter]:
    """What can be given by name; nothing where there is no signature."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return [parameter for parameter in found if parameter.kind not in unnamed]


def required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def is_configuration(parameter: inspect.Parameter) -> bool:
    """Is a configuration wanted here? By its name, or because its type is called so."""
    if re.search(CONFIGURATION, parameter.name.lower()):
        return True
    kind = parameter.annotation
    return bool(re.search(r"Config|Args|Dimensions|Params|Settings", getattr(kind, "__name__", str(kind))))


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and any(base.__name__ == "Module" for base in kind.__mro__)


def takes(parameter: inspect.Parameter, meaning: str) -> bool:
    """May a size be put here? Its default and its annotation must be of that kind of number."""
    kind, default = parameter.annotation, parameter.default
    if kind in (bool, str, "bool", "str") or "Module" in str(kind) or is_model(kind):
        return False
    if required(parameter):
        return True
    if isinstance(default, bool):
        return False
    if default is None:
        return meaning in ("vocab", "heads", "layers", "width")
    return isinstance(default, float | int) if meaning == "dropout" else isinstance(default, int)


def number_or_nothing(parameter: inspect.Parameter) -> bool:
    default = parameter.default
    return required(parameter) or default is None or (isinstance(default, int) and not isinstance(default, bool))


def plan_call(function: Any, name: str, configure: Configure) -> Plan:
    """The code of a call with small sizes. Raises Unknown for a required argument that says nothing."""
    plan, arguments = Plan("", used=[name]), []
    given = parameters(function)
    # where one name clearly means the width of the model, `hidden` means that of the feed-forward part
    clear = any(re.search(r"d_?model|n_?emb|^emb|embed|^dim$|model_dim", one.name.lower()) for one in given)
    for parameter in given:
        meaning = names.size(parameter.name)
        if meaning == "width" and clear and "hidden" in parameter.name.lower():
            meaning = "inner"
        if meaning is not None and takes(parameter, meaning):
            arguments.append(f"{parameter.name}={names.code(meaning)}")
        elif is_configuration(parameter) and (required(parameter) or parameter.default is None):
            inner = configure(parameter, False)
            if inner is None:
                raise Unknown(name, parameter.name)
            plan.take(inner)
            arguments.append(f"{parameter.name}={inner.code}")
        elif names.is_padding(parameter.name) and number_or_nothing(parameter):
            value = parameter.default if isinstance(parameter.default, int) else 0
            plan.padding[parameter.name] = value
            if value != parameter.default:
                arguments.append(f"{parameter.name}={value}")
        elif required(parameter) and (part := configure(parameter, True)) is not None:
            plan.take(part)
            arguments.append(f"{parameter.name}={part.code}")
        elif required(parameter):
            code = guess(name, parameter)
            plan.guessed[parameter.name] = code
            arguments.append(f"{parameter.name}={code}")
    plan.code = f"{name}({', '.join(arguments)})"
    return plan


def guess(owner: str, parameter: inspect.Parameter) -> str:
    """A value for a required argument that is no size, as code: by its name, else by its type."""
    if "Module" in str(parameter.annotation) or is_model(parameter.annotation):
        raise Unknown(owner, parameter.name)
    if "dtype" in parameter.name:
        return "torch.float32"
    known, value = names.value(parameter.name)
    if known:
        return repr(value)
    kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
    by_type = {"bool": "False", "float": "0.0"}
    if kind in by_type:
        return by_type[kind]
    if "Optional" in str(parameter.annotation) or "None" in str(parameter.annotation):
        return "None"
    raise Unknown(owner, parameter.name)
