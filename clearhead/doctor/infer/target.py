"""From what the user typed to a description: one that is there, or one that is inferred.

mypackage.model:spec      a description, or a function that makes one
mypackage.model:GPT       a class, a factory function or a model: described by inference
path/to/file.py:GPT       the same in a file
path/to/file.py           the description in it, or its one obvious model
"""

import inspect
import re
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.doctor.describe import Description
from clearhead.doctor.infer import Inferred, infer, known
from clearhead.doctor.infer.constructor import parameters, required
from clearhead.doctor.infer.load import Loaded, load, named, quiet, split
from clearhead.doctor.infer.raised import told
from clearhead.errors import InputError


def describe_target(target: str, folder: Path | None = None) -> Inferred:
    """The description that a target names or lets infer; its code is empty where the user wrote it."""
    head, name = split(target)
    loaded = load(head)
    if name:
        return described(named(loaded, name), name, loaded, folder)
    specs = {key: value for key, value in vars(loaded.module).items() if isinstance(value, Description)}
    if "spec" in specs or len(specs) == 1:
        return Inferred(specs.get("spec") or next(iter(specs.values())), "")
    if specs:
        raise InputError(f"{head} has several descriptions ({', '.join(specs)}); name one: {head}:{next(iter(specs))}")
    return obvious(loaded, folder)


def described(found: Any, name: str, loaded: Loaded, folder: Path | None) -> Inferred:
    """A description as it is, a function that makes one, or a model that has to be described."""
    if isinstance(found, Description):
        return Inferred(found, "")
    ready = known.spec_of(found, name, loaded)
    if ready is not None:
        return Inferred(ready[0], ready[1], tuple(ready[2]))
    if isinstance(found, nn.Module) or (isinstance(found, type) and issubclass(found, nn.Module)):
        return infer(found, name, loaded, folder)
    if callable(found) and not isinstance(found, type):
        if not any(required(parameter) for parameter in parameters(found)):
            made = called(found, name)
            if isinstance(made, Description):
                return Inferred(made, "")
            if not isinstance(made, nn.Module):
                raise InputError(f"{name}() returned {type(made).__name__}, wanted a description or a model")
        return infer(found, name, loaded, folder)
    raise InputError(
        f"{loaded.target}:{name} is a {type(found).__name__}, wanted a description (doctor.CausalLM, Encoder or "
        "EncoderDecoder), a model class or a function that builds a model"
    )


def called(function: Any, name: str) -> Any:
    with quiet():
        try:
            return function()
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{name}() raised {told(error)}") from error


def obvious(loaded: Loaded, folder: Path | None) -> Inferred:
    """The one model of a module: no other class of it uses it, and it takes tokens."""
    own = {
        key: value
        for key, value in vars(loaded.module).items()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == loaded.module.__name__
    }
    if not own:
        raise InputError(f"{loaded.target} has neither a description nor a model; name one: {loaded.target}:NAME")
    text = {key: source_of(value) for key, value in own.items()}
    tops = [
        key
        for key in own
        if not any(re.search(rf"\b{key}\b", code.split(":", 1)[-1]) for other, code in text.items() if other != key)
        and not any(issubclass(value, own[key]) for other, value in own.items() if other != key)
    ]
    found, problems = {}, []
    for key in tops or list(own):
        try:
            found[key] = described(own[key], key, loaded, folder)
        except InputError as error:
            problems.append(str(error))
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise InputError(f"{loaded.target} has several models; name one of {', '.join(found)}: {loaded.target}:NAME")
    if len(problems) == 1:
        raise InputError(problems[0])
    raise InputError(
        f"{loaded.target} has no obvious model among {', '.join(tops or own)}; name one: {loaded.target}:NAME"
    )


def source_of(value: type) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""
