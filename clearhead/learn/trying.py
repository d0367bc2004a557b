"""Trying a part: what it returns, whether twice the same, what it does to its arguments, and its gradients.

An `Outcome` is all of that for one implementation; `difference` compares two of them in the order in which a learner
should mend things: it runs, shapes, values, arguments unharmed, the second call, gradients.
"""

import copy
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from clearhead.learn.exercise import Draw, Misfit, Run, Sizes, Trial


@dataclass
class Outcome:
    """What came of a call."""

    arguments: tuple[Any, ...]
    output: Any = None
    error: Exception | None = None
    again: Any = None  # of the second call
    changed: tuple[int, ...] = ()  # arguments that the call changed
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    differentiable: bool = False


@dataclass(frozen=True)
class Difference:
    """How two outcomes differ: of what kind, where, and the two values there."""

    kind: str  # runs, shapes, values, arguments, again, gradients
    got: Any
    wanted: Any
    where: str = ""  # "[0, 2]", "gradient of q"
    ratio: float | None = None  # got / wanted, if it is the same everywhere


def attempt(
    trial: Trial,
    parts: Mapping[str, Any],
    ours: Mapping[str, Any],
    sizes: Sizes,
    seed: int,
    chance: int = -1,
    once: bool = False,
) -> Outcome:
    """Call a part as the trial says. What is raised is kept, not raised. `chance` seeds what the part draws; `once`
    leaves the gradients and the second call out."""
    chance = seed if chance < 0 else chance
    arguments = trial.make(sizes, Draw(seed))
    outcome = Outcome(arguments)
    run = Run(parts, ours, sizes, seed)
    given = [leaf(fresh(argument), trial.gradients) for argument in arguments]
    call = trial.call or (lambda run, *args: getattr(run, trial.part)(*args))
    before = torch.get_rng_state()
    try:
        torch.default_generator.manual_seed(chance)
        outcome.output = call(run, *given)
        outcome.changed = tuple(
            i for i, (a, b) in enumerate(zip(given, arguments, strict=True)) if unlike(plain(a), b, 0.0)
        )
        if trial.gradients and not once:
            outcome.gradients = gradients(outcome, given, run, trial)
        outcome.output = plain(outcome.output)
        if once:
            return outcome
        torch.default_generator.manual_seed(chance)
        outcome.again = plain(call(Run(parts, ours, sizes, seed), *map(fresh, arguments)))
    except Exception as error:
        outcome.error = error
    finally:
        torch.set_rng_state(before)
    return outcome


def fresh(argument: Any) -> Any:
    """A copy that a call may do anything to."""
    return argument.clone() if isinstance(argument, Tensor) else copy.deepcopy(argument)


def leaf(argument: Any, wanted: bool) -> Any:
    if wanted and isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.requires_grad_()
    return argument


def plain(value: Any) -> Any:
    """Without what autograd remembers."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, tuple | list):
        return type(value)(plain(item) for item in value) if type(value) in (tuple, list) else value
    return value


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors(item)] if isinstance(value, tuple | list) else []


def gradients(outcome: Outcome, given: list[Any], run: Run, trial: Trial) -> dict[str, Tensor | None]:
    """Of a fixed mixture of all outputs, with respect to float arguments and parameters, by name."""
    leaves = {f"argument {i}": x for i, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad}
    for module in run.modules.values():
        leaves |= {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    total: Any = 0.0
    for number, tensor in enumerate(tensors(outcome.output)):
        if tensor.requires_grad:
            total = total + (tensor * Draw(number).normal(*tensor.shape)).sum()
    outcome.differentiable = isinstance(total, Tensor)
    if not isinstance(total, Tensor) or not leaves:
        return dict.fromkeys(leaves)
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    dense = [x.to_dense() if x is not None and x.is_sparse else x for x in found]
    return dict(zip(leaves, dense, strict=True))


# ---- comparing -----------------------------------------------------------------------------------------------------


def unlike(got: Any, wanted: Any, tolerance: float, where: str = "") -> Difference | None:
    """The first difference of two values: in type, in shape, or in numbers."""
    if isinstance(wanted, Tensor):
        return unlike_tensors(got, wanted, tolerance, where)
    if isinstance(wanted, tuple | list):
        if not isinstance(got, tuple | list) or (isinstance(got, tuple) != isinstance(wanted, tuple) and where):
            return Difference("shapes", got, wanted, where)
        for index, (a, b) in enumerate(zip(got, wanted, strict=False)):
            if found := unlike(a, b, tolerance, f"{where}[{index}]"):
                return found if tensors(wanted) else Difference(found.kind, got, wanted, where)
        return None if len(got) == len(wanted) else Difference("values", got, wanted, where)
    if isinstance(wanted, float):
        number = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
        if isinstance(number, bool) or not isinstance(number, int | float):
            return Difference("shapes", got, wanted, where)
        close = math.isclose(number, wanted, rel_tol=max(tolerance, 1e-12), abs_tol=tolerance * 1e-3)
        return None if close else Difference("values", number, wanted, where, number / wanted if wanted else None)
    return None if type(got) is type(wanted) and got == wanted else Difference("values", got, wanted, where)


def unlike_tensors(got: Any, wanted: Tensor, tolerance: float, where: str) -> Difference | None:
    kinds = (wanted.dtype == torch.bool, wanted.is_floating_point())
    if not isinstance(got, Tensor) or (got.dtype == torch.bool, got.is_floating_point()) != kinds:
        return Difference("shapes", got, wanted, where)
    if got.shape != wanted.shape:
        return Difference("shapes", got, wanted, where)
    if not wanted.is_floating_point():
        wrong = got != wanted
    else:
        a, b = got.double(), wanted.double()
        size = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 1.0
        wrong = ~((a - b).abs() <= tolerance * max(1.0, size)) & ~((a == b) | (a.isnan() & b.isnan()))
    if not wrong.any():
        return None
    return Difference("values", got, wanted, where, ratio(got, wanted) if wanted.is_floating_point() else None)


def ratio(got: Tensor, wanted: Tensor) -> float | None:
    """got / wanted where it is the same number everywhere."""
    usable = wanted.abs() > 1e-9
    if not usable.any() or got[~usable].abs().gt(1e-9).any():
        return None
    quotients = got[usable].double() / wanted[usable].double()
    mean = quotients.mean()
    return mean.item() if bool(((quotients - mean).abs() < 1e-4 * mean.abs()).all()) else None


def difference(got: Outcome, wanted: Outcome, trial: Trial) -> Difference | None:
    """What is wrong first, or nothing."""
    if got.error is not None or wanted.error is not None:
        same = got.error is not None and type(got.error) is type(wanted.error) and str(got.error) == str(wanted.error)
        return None if same else Difference("runs", got.error, wanted.error if wanted.error else wanted.output)
    if found := unlike(got.output, wanted.output, trial.tolerance):
        return found
    for index in got.changed:
        if index not in wanted.changed:
            return Difference("arguments", f"argument {index} was changed", "arguments as they were", str(index))
    if (found := unlike(got.again, wanted.again, trial.tolerance)) and not wanted.changed:
        return Difference("again", found.got, found.wanted)
    return unlike_gradients(got, wanted, trial)


class WithoutDropout(TorchFunctionMode):
    """Within it nothing is dropped, whatever the rate and the mode."""

    DROPS = (functional.dropout, torch.dropout, torch.dropout_)

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = dict(named or {})
        if function in self.DROPS:
            return arguments[0] if arguments else named["input"]
        if function is functional.scaled_dot_product_attention:
            arguments, named["dropout_p"] = (*arguments[:4], *arguments[5:]), 0.0
        return function(*arguments, **named)


def unsteady(trial: Trial, parts: Mapping[str, Any], ours: Mapping[str, Any], sizes: Sizes, seed: int) -> str:
    """Does the same call give something else when chance or the calls before it are others, and ours does not?
    "dropout" if it is right where nothing is dropped; "unsteady" if something else is behind it."""
    trial = replace(trial, gradients=False)
    wanted = attempt(trial, ours, ours, sizes, seed)

    def steady(names: Mapping[str, Any]) -> tuple[bool, Outcome]:
        one, other = (attempt(trial, names, ours, sizes, seed, chance) for chance in (seed, seed + 1))
        same = one.error is not None or other.error is not None or not unlike(other.output, one.output, trial.tolerance)
        return same, one

    if steady(parts)[0] or not steady(ours)[0]:
        return ""
    with WithoutDropout():
        same, quiet = steady(parts)
    right = same and quiet.error is None and not unlike(quiet.output, wanted.output, trial.tolerance)
    return "dropout" if right else "unsteady"


def unlike_gradients(got: Outcome, wanted: Outcome, trial: Trial) -> Difference | None:
    for name, right in wanted.gradients.items():
        mine = got.gradients.get(name)
        where = f"gradient of {argument_name(name, trial)}"
        if right is None or not right.any():
            if mine is not None and mine.abs().max() > trial.tolerance:
                return Difference("gradients", mine, torch.zeros_like(mine), where)
        elif mine is None:
            return Difference("gradients", None, right, where)
        elif found := unlike_tensors(mine, right, 10 * trial.tolerance, where):
            return Difference("gradients", found.got, found.wanted, where, found.ratio)
    return None


def argument_name(name: str, trial: Trial) -> str:
    if not name.startswith("argument "):
        return name
    return argument_names(trial)[int(name.split()[1])]


def argument_names(trial: Trial) -> list[str]:
    """As our part calls its arguments, or as the trial's `shown` has them: "MultiHeadAttention(width, heads)(x)"."""
    if "(" in trial.shown:
        inner = trial.shown[trial.shown.rindex("(") + 1 :].rstrip(")")
        return [name.strip() for name in inner.split(",")] + [f"argument {i}" for i in range(9)]
    from clearhead.learn.source import find_part

    function = find_part(trial.part)
    target = function.forward if inspect.isclass(function) and hasattr(function, "forward") else function
    names = [name for name in inspect.signature(target).parameters if name != "self"]
    return names + [f"argument {i}" for i in range(len(names), 9)]


# ---- the smallest that fails ---------------------------------------------------------------------------------------


def alike(one: BaseException | None, other: BaseException | None) -> bool:
    """The same error but for its numbers: a smaller input may fail at another place, for another reason."""
    return type(one) is type(other) and re.sub(r"\d+", "", str(one)) == re.sub(r"\d+", "", str(other))


def shrink(
    trial: Trial,
    parts: Mapping[str, Any],
    ours: Mapping[str, Any],
    sizes: Sizes,
    seed: int,
    first: tuple[Outcome, Difference],
) -> tuple[Sizes, Outcome, Difference]:
    """Make one size after the other smaller, as long as the same kind of thing is wrong as at first."""
    kind = first[1].kind
    once = kind in ("values", "shapes")  # what is wrong at once shrinks faster without gradients and a second call

    def fails(smaller: Sizes) -> tuple[Outcome, Difference] | None:
        try:
            wanted = attempt(trial, ours, ours, smaller, seed, once=once)
        except Exception:
            return None  # the arguments cannot be made that small
        if wanted.error is not None:
            return None
        got = attempt(trial, parts, ours, smaller, seed, once=once)
        if kind == "runs":
            return (got, Difference("runs", got.error, wanted.output)) if alike(got.error, first[0].error) else None
        if got.error is not None and isinstance(got.error, Misfit) != (kind == "shapes"):
            return None
        found = difference(got, wanted, trial)
        return (got, found) if found is not None and found.kind == kind else None

    best = fails(sizes) or first
    if best is first:  # it does not fail twice in the same way: something is remembered, and nothing can be shrunk
        return sizes, *first
    improved = True
    while improved:
        improved = False
        for letter in sizes:
            for value in (1, 2, 3) if letter != "padded" else (0,):
                if value >= sizes[letter]:
                    break
                smaller = Sizes({**sizes, letter: value})
                if found := fails(smaller):
                    sizes, best, improved = smaller, found, True
                    break
    return sizes, *best
