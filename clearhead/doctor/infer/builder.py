"""A builder for whatever the target names: a class, a factory function, or a model that is already there.

Ways to build are tried in turn, in the doctor's small sizes; the first that gives a model is written down as code.
"""

import copy
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from clearhead.doctor.infer import configuration
from clearhead.doctor.infer.constructor import Configure, Plan, Unknown, plan_call
from clearhead.doctor.infer.load import Loaded
from clearhead.doctor.infer.raised import told
from clearhead.doctor.sizes import EVEN, GROUPED, TINY
from clearhead.errors import InputError

HINT = "describe how it is built: build=lambda vocab, width, heads, layers: "
LARGE = 50_000_000


@dataclass
class Built:
    """Code that builds the model, the function it gives, and a model that it built."""

    plan: Plan
    code: str
    build: Callable[..., Any]
    model: nn.Module
    sizes: dict[str, Any]
    through: str = ""  # the factory that was used where a class alone could not be built


def function(code: str, names: dict[str, Any]) -> Any:
    """The function that a piece of code defines."""
    space = {"torch": torch, "nn": nn, "copy": copy, "SimpleNamespace": SimpleNamespace, **names}
    exec(compile(code, "<inferred>", "exec"), space)
    return next(value for key, value in reversed(space.items()) if callable(value) and f"def {key}(" in code)


def definition(plan: Plan) -> str:
    sizes, first = plan.sizes(), GROUPED if "kv_heads" in plan.sizes() else TINY
    given = ", ".join(f"{size}={first[size]!r}" for size in sizes)
    return "\n".join([f"def build({given}):", *(f"    {line}" for line in plan.lines), f"    return {plan.code}"])


def builder(found: Any, name: str, loaded: Loaded) -> Built:
    """A way to build `found`; what went wrong is told, with the line that would help."""
    if isinstance(found, nn.Module):
        return finish(Plan(name, used=[name]), loaded)
    problem = ""
    for plan in ways(found, name, loaded):
        if isinstance(plan, str):
            problem = problem or plan
            continue
        try:
            return finish(plan, loaded)
        except InputError as error:
            problem = problem or str(error)
    for other in factories(found, name, loaded):
        try:
            built = builder(getattr(loaded.module, other), other, loaded)
        except InputError:
            continue
        if not isinstance(found, type) or isinstance(built.model, found):
            built.through = other
            return built
    raise InputError(f"{name} could not be built: {problem}; {HINT}{name}(...)")


def ways(found: Any, name: str, loaded: Loaded) -> Iterator[Plan | str]:
    """Plans to try, or what stands in the way of one."""
    module = loaded.module

    def given(plan: Plan | None) -> Configure:
        return lambda parameter, part: configuration.part_of(parameter, found, module) if part else plan

    wanted = configuration.wanted(found)
    if wanted is None:
        try:
            yield plan_call(found, name, given(None))
        except Unknown as error:
            yield str(error)
        return
    try:
        for plan in configuration.plans(wanted, found, module):
            yield plan_call(found, name, given(plan))
    except Unknown as error:
        yield str(error)
    except Exception as error:
        yield told(error)
    try:
        others = plan_call(found, name, given(Plan("ASKED")))
        names = {one: resolve(loaded, one) for one in others.used}
        call = eval(f"lambda ASKED: {others.code}", {"torch": torch, **GROUPED, **names})
        plan = configuration.discover(call, wanted, module)
        yield plan_call(found, name, given(plan))
    except (Unknown, configuration.Unanswered) as error:
        yield str(error)
    except Exception as error:
        yield told(error)


def finish(plan: Plan, loaded: Loaded) -> Built:
    """Build in the doctor's sizes; a size that does not suit is tried once more in even ones."""
    code = definition(plan)
    build = function(code, {name: resolve(loaded, name) for name in plan.used})
    sizes = plan.sizes()
    problem: BaseException | None = None
    for option in (GROUPED if "kv_heads" in sizes else TINY, EVEN):
        chosen = {size: option[size] for size in sizes}
        torch.manual_seed(0)
        try:
            model = build(**chosen)
        except (Exception, SystemExit) as error:
            problem = problem or error
            continue
        if not isinstance(model, nn.Module):
            raise InputError(f"{plan.code} returned {type(model).__name__}, wanted an nn.Module")
        count = sum(parameter.numel() for parameter in model.parameters())
        if count > LARGE:
            raise InputError(f"{plan.code} has {count:,} parameters, and no size that could be made small was found")
        return initialised(agreeing(Built(plan, code, build, model, chosen), loaded), loaded)
    raise InputError(f"{plan.code} raised {told(problem)}" if problem else plan.code) from problem


def agreeing(built: Built, loaded: Loaded) -> Built:
    """An id of padding that had to be guessed is the one that the model's embeddings keep from learning."""
    tables = [m for m in built.model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None]
    marks = {table.padding_idx for table in tables}
    mark = next(iter(marks), None)
    guessed = [name for name, value in built.plan.padding.items() if f"{name}={value}" in definition(built.plan)]
    wrong = [name for name in guessed if built.plan.padding[name] == 0]  # what is put where nothing is known
    if len(marks) != 1 or not mark or not wrong:
        return built

    def corrected(code: str) -> str:
        return re.sub(rf"\b({'|'.join(wrong)})=\d+", rf"\g<1>={mark}", code)

    padding = {**built.plan.padding, **dict.fromkeys(wrong, mark)}
    lines = [corrected(line) for line in built.plan.lines]
    return finish(replace(built.plan, code=corrected(built.plan.code), lines=lines, padding=padding), loaded)


def initialised(built: Built, loaded: Loaded) -> Built:
    """Parameters that the constructor leaves as memory happened to be get small random numbers, in the code too."""
    names = bare(built)
    if not names or built.plan.lines[-1:] == ["        nn.init.normal_(parameter, std=0.02)"]:
        return built
    plan = replace(built.plan, code="model", bare=names)
    plan.lines = [
        *built.plan.lines,
        f"model = {built.plan.code}",
        "for name, parameter in model.named_parameters():  # the constructor leaves these uninitialised",
        f"    if name.split('.')[-1] in {names!r}:",
        "        nn.init.normal_(parameter, std=0.02)",
    ]
    return finish(plan, loaded)


def bare(built: Built) -> list[str]:
    """The last part of the names of parameters that nothing was written into: torch can fill such memory with NaN."""
    kinds = {type(module) for module in built.model.modules() if not type(module).__module__.startswith("torch.")}
    if not any("empty(" in source_of(kind) for kind in kinds):
        return []
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        model = built.build(**built.sizes)
    except Exception:
        return []
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
    return sorted({name.split(".")[-1] for name, one in model.named_parameters() if bool(one.isnan().any())})


def resolve(loaded: Loaded, name: str) -> Any:
    """A name of the user's module, or of the module in which its class was defined."""
    found: Any = loaded.module
    for part in name.split("."):
        if not hasattr(found, part):
            return getattr(home(loaded, name), name)
        found = getattr(found, part)
    return found


def home(loaded: Loaded, name: str) -> Any:
    """The module that has this name, among those that the user's module took something from."""
    for value in list(vars(loaded.module).values()):
        module = inspect.getmodule(value) if isinstance(value, type) or callable(value) else None
        if module is not None and hasattr(module, name):
            return module
    raise InputError(f"{loaded.target} has no {name!r}")


def factories(found: Any, name: str, loaded: Loaded) -> list[str]:
    """Functions of the same module that call the class: make_model for EncoderDecoder."""
    if not isinstance(found, type):
        return []
    own = [
        (key, value)
        for key, value in vars(loaded.module).items()
        if inspect.isfunction(value) and value.__module__ == loaded.module.__name__
    ]
    callers = [key for key, value in own if f"{name}(" in source_of(value)]
    return sorted(callers, key=lambda key: not any(word in key for word in ("make", "build", "get", "create")))


def source_of(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""
