"""Checking an exercise: part after part, trial after trial, until something is wrong; then the smallest input that
shows it, when the part would be right, and the likely cause.
"""

import ast
import inspect
import re
import textwrap
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from clearhead.errors import InputError
from clearhead.learn.exercise import Exercise, Misfit, Mistake, Run, Sizes, Trial
from clearhead.learn.exercises import course
from clearhead.learn.guessing import SURE, guess
from clearhead.learn.likely import rank, right_outcome
from clearhead.learn.show import both, show
from clearhead.learn.source import our_parts
from clearhead.learn.trying import (
    Difference,
    Outcome,
    argument_names,
    attempt,
    difference,
    shrink,
    unlike,
)
from clearhead.learn.verdict import PASSED, UNWRITTEN, WRONG, Likely, Line, Verdict
from clearhead.settings import nearest

SEED = 3
# what a wrong part is tried with again: if it is right then, that is said
VARIATIONS: dict[str, dict[str, int | str]] = {
    "B = 1": {"B": 1},
    "nothing is padded": {"padded": 0},
    "S = T": {"S": "T"},
    "there is one head": {"H": 1},
}
MESSAGES = {
    "runs": "{part} fails",
    "shapes": "{part} gives the wrong shape",
    "values": "{part} is wrong",
    "unstable": "{part} is right, but not for {what}",
    "arguments": "{part} changes what it is given",
    "again": "{part} gives something else when it is called again",
    "gradients": "{part} has the right values, but a wrong gradient",
}


def check(exercise: str | Exercise, *parts: Any, **named: Any) -> Verdict:
    """Check parts of an exercise: `check("attention", my_attention)`, `check("heads", split_heads=f, merge_heads=g)`,
    or a module that has them all. Parts that are not given are not checked."""
    chosen = exercise if isinstance(exercise, Exercise) else find(exercise)
    given = gather(chosen, parts, named)
    started = time.perf_counter()
    right: list[str] = []
    for part in chosen.parts:
        if part not in given:
            continue
        names = {**our_parts(chosen), **given}
        verdict = unwritten(chosen, part, given[part]) or try_part(chosen, part, names, given[part])
        if verdict is not None:
            return replace(verdict, right=tuple(right), seconds=time.perf_counter() - started)
        right.append(part)
    names = {**our_parts(chosen), **given}
    whole = len(right) == len(chosen.parts)
    try:
        picture = chosen.picture(names) if chosen.picture and whole else ""
    except Exception as error:  # it is one call more, with other arguments
        return fails(chosen, chosen.parts[-1], error, given[chosen.parts[-1]])
    return Verdict(
        chosen.name,
        PASSED,
        message=f"{chosen.name}: passed" if whole else f"{', '.join(right)}: right",
        right=tuple(right),
        remarks=remarks(chosen, names),
        picture=picture,
        seconds=time.perf_counter() - started,
    )


def find(name: str) -> Exercise:
    if name not in course():
        raise InputError(f"unknown exercise {name!r}{nearest(name, list(course()))}")
    return course()[name]


def gather(exercise: Exercise, parts: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Parts by name, from functions and classes, or from a module."""
    given = dict(named)
    for number, part in enumerate(parts):
        if isinstance(part, ModuleType):
            given |= {name: value for name, value in vars(part).items() if name in exercise.parts}
        elif callable(part):
            name = getattr(part, "__name__", "")
            given[name if name in exercise.parts else exercise.parts[number]] = part
        else:
            raise InputError(f"{exercise.name} is checked by its functions or a module, not by a {type(part).__name__}")
    wrong = [name for name in given if name not in exercise.parts]
    if wrong or not given:
        said = f"found {', '.join(wrong)}" if wrong else "found none of them"
        raise InputError(f"the parts of {exercise.name} are {', '.join(exercise.parts)}; {said}")
    return given


# ---- one part ------------------------------------------------------------------------------------------------------


def unwritten(exercise: Exercise, part: str, written: Any) -> Verdict | None:
    """Is the body still the stub's?"""
    try:
        lines, first = inspect.getsourcelines(written)
        tree = ast.parse(inspect.cleandoc("\n" + "".join(lines)) if lines[0][:1].isspace() else "".join(lines))
    except (OSError, TypeError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Raise) and "NotImplementedError" in ast.unparse(statement):
                    where = first + statement.lineno - 1
                    line = Line(str(inspect.getsourcefile(written)), where, lines[statement.lineno - 1].rstrip())
                    name = part if isinstance(tree.body[0], ast.FunctionDef) else f"{part}.{node.name}"
                    return Verdict(
                        exercise.name,
                        UNWRITTEN,
                        part,
                        "unwritten",
                        f"not yet written: {name} (line {where})",
                        line=line,
                    )
    return None


def try_part(exercise: Exercise, part: str, names: Mapping[str, Any], written: Any) -> Verdict | None:
    """All trials and properties of a part; a verdict if something is wrong."""
    ours = our_parts(exercise)
    trials = [trial for trial in exercise.trials if trial.part == part]
    theirs: list[Outcome] = []
    failed: tuple[int, Difference] | None = None
    for number, trial in enumerate(trials):
        sizes = Sizes(trial.sizes)
        theirs.append(attempt(trial, names, ours, sizes, SEED + number))
        if failed is None:
            found = difference(theirs[-1], right_outcome(exercise, trial, SEED + number), trial)
            failed = None if found is None else (number, found)
    if failed is not None:
        return explain(exercise, part, names, trials, theirs, failed, written)
    return try_properties(exercise, part, names, written, trials, theirs)


def try_properties(
    exercise: Exercise,
    part: str,
    names: Mapping[str, Any],
    written: Any,
    trials: Sequence[Trial],
    theirs: Sequence[Outcome],
) -> Verdict | None:
    """The properties that a part must have besides the right values."""
    for property in exercise.properties:
        if not property.rejects or property.part != part:
            continue
        try:
            evidence = property.ask(Run(names, our_parts(exercise), Sizes(property.sizes), SEED))
        except Exception as error:
            return fails(exercise, part, error, written)
        if evidence is not None:
            likely, mistakes = rank(exercise, part, names, trials, theirs, SEED)
            return Verdict(
                exercise.name,
                WRONG,
                part,
                str(evidence.get("kind", "property")),
                f"{part}: {property.message}",
                called=str(evidence.get("called", "")),
                got=str(evidence.get("got", "")),
                wanted=str(evidence.get("wanted", "")),
                likely=likely,
                line=point_at(written, mistakes, f"{part}.__init__" in exercise.written),
            )
    return None


def fails(exercise: Exercise, part: str, error: Exception, written: Any) -> Verdict:
    """The verdict on a part that raised an error where it was called for something else than a trial."""
    return Verdict(
        exercise.name,
        WRONG,
        part,
        "runs",
        MESSAGES["runs"].format(part=part),
        got=show(error),
        likely=guess("runs", "", error),
        line=raised_at(error, written),
    )


def explain(
    exercise: Exercise,
    part: str,
    names: Mapping[str, Any],
    trials: Sequence[Trial],
    theirs: Sequence[Outcome],
    failed: tuple[int, Difference],
    written: Any,
) -> Verdict:
    """The verdict on a trial that failed."""
    number, found = failed
    trial, ours = trials[number], our_parts(exercise)
    misfit = found.got if isinstance(found.got, Misfit) else None
    kind = "shapes" if misfit else found.kind
    _, outcome, found = shrink(trial, names, ours, Sizes(trial.sizes), SEED + number, (theirs[number], found))
    only = right_when(trial, names, ours, SEED + number)
    likely, mistakes = rank(exercise, part, names, trials, theirs, SEED, number)
    if kind == "arguments" and not any(mistakes):
        likely = guess(kind, only, None)  # a property that such a part violates too says less
    if kind == "values" and trial.kind != "values":
        kind = trial.kind
    error = outcome.error
    if misfit is not None and isinstance(error, Misfit):
        got, wanted = error.got, error.wanted
    elif kind == "arguments":
        name = argument_names(trial)[int(found.where)]
        got, wanted = f"{name} is not the same afterwards", f"{name} as it was"
    else:
        got, wanted = both(found.got, found.wanted, found.where)
    if found.ratio and abs(found.ratio - 1) > 1e-4 and found.kind == "values" and len(show(found.wanted)) > 8:
        got += f"   ({found.ratio:.4g} times what is wanted)"
    line = raised_at(error, written) if error is not None and misfit is None else None
    if line is not None:
        likely, mistakes = by_line(likely, mistakes, line)
    harmful = "arguments" if kind == "values" and outcome.changed else kind  # the likeliest reason for wrong values
    guessed = guess(harmful, only, error, (part, trial.what))
    if guessed and guessed[0].id in SURE:
        likely = guessed
    return Verdict(
        exercise.name,
        WRONG,
        part,
        kind,
        MESSAGES[kind].format(part=part, what=trial.what) + (f" (right only when {only})" if only else ""),
        called=called(trial, outcome),
        got=got,
        wanted=wanted,
        likely=likely or guessed,
        only=only,
        line=line or point_at(written, mistakes, f"{part}.__init__" in exercise.written),
    )


def by_line(
    likely: tuple[Likely, ...], mistakes: tuple[Mistake | None, ...], line: Line
) -> tuple[tuple[Likely, ...], tuple[Mistake | None, ...]]:
    """Several mistakes may raise the same error: first those that are made in such a line as it was raised in."""
    pairs = list(zip(likely, mistakes, strict=True))
    pairs.sort(key=lambda pair: not (pair[1] and pair[1].where and re.search(pair[1].where, line.text)))
    return tuple(one for one, _ in pairs), tuple(mistake for _, mistake in pairs)


def right_when(trial: Trial, names: Mapping[str, Any], ours: Mapping[str, Any], seed: int) -> str:
    """The first variation of the sizes under which nothing is wrong."""
    sizes = Sizes(trial.sizes)
    for said, changes in VARIATIONS.items():
        values = {letter: sizes.get(new, 0) if isinstance(new, str) else new for letter, new in changes.items()}
        varied = Sizes({**sizes, **values})
        others = {new for new in changes.values() if isinstance(new, str)}
        if not {*values, *others} <= set(sizes) or varied == sizes:
            continue
        try:
            once = attempt(trial, ours, ours, varied, seed, once=True)
            got = attempt(trial, names, ours, varied, seed, once=True)
            if once.error or got.error or unlike(got.output, once.output, trial.tolerance):
                continue
            wanted = attempt(trial, ours, ours, varied, seed)
        except Exception:
            continue
        if wanted.error is None and difference(attempt(trial, names, ours, varied, seed), wanted, trial) is None:
            return said
    return ""


def called(trial: Trial, outcome: Outcome) -> str:
    """The call as one would write it, with the arguments it had."""
    names = argument_names(trial)
    if not any(hasattr(argument, "shape") for argument in outcome.arguments) and not trial.shown:
        return f"{trial.part}({', '.join(show(argument) for argument in outcome.arguments)})"
    inner = names[: len(outcome.arguments)]
    head = trial.shown or f"{trial.part}({', '.join(inner)})"
    lines = [head + (f"   {trial.what}" if trial.what else "")]
    for name, argument in zip(inner, outcome.arguments, strict=False):
        shape = f" {tuple(argument.shape)}" if hasattr(argument, "shape") and "tensor" not in show(argument) else ""
        lines.append(f"{name}{shape} = {show(argument)}")
    return "\n".join(lines)


# ---- lines of the learner's file -----------------------------------------------------------------------------------


def raised_at(error: BaseException, written: Any) -> Line | None:
    """The last line of the learner's own file that an exception went through."""
    try:
        own = str(Path(str(inspect.getsourcefile(inspect.unwrap(written)))).resolve())  # behind @torch.no_grad()
    except (TypeError, OSError):
        return None
    package = str(Path(__file__).resolve().parents[1])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        mine = str(Path(frame.filename).resolve())
        if mine == own or (mine.startswith(str(Path(own).parent)) and not mine.startswith(package)):
            return Line(frame.filename, frame.lineno or 0, (frame.line or "").rstrip())
    return None


def bodies(lines: Sequence[str], constructor: bool) -> list[int]:
    """Which lines of a part the learner wrote: no signatures or docstrings, and no constructor if it was given."""
    try:
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:  # a lambda within something else
        return list(range(len(lines)))
    written: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (constructor or node.name != "__init__"):
            for statement in node.body:
                if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
                    written |= set(range(statement.lineno - 1, statement.end_lineno or statement.lineno))
    return sorted(written)


def point_at(written: Any, mistakes: Sequence[Mistake | None], constructor: bool = True) -> Line | None:
    """The line that the likeliest mistake is usually on; if there is none, where the part begins."""
    try:
        lines, first = inspect.getsourcelines(written)
        file = str(inspect.getsourcefile(inspect.unwrap(written)))
    except (OSError, TypeError):
        return None
    for mistake in mistakes[:1]:
        if mistake is not None and mistake.where:
            fitting = [
                Line(file, first + offset, lines[offset].rstrip())
                for offset in bodies(lines, constructor)
                if re.search(mistake.where, lines[offset]) and not lines[offset].strip().startswith(("#", "def "))
            ]
            if fitting:
                return replace(fitting[0], near=len(fitting) > 1)
    for offset, text in enumerate(lines):
        if text.lstrip().startswith(("def ", "class ")):
            return Line(file, first + offset, text.rstrip(), near=True)
    return None


def remarks(exercise: Exercise, names: Mapping[str, Any]) -> tuple[str, ...]:
    """What is worth knowing and no failure: properties whose evidence says so."""
    said = []
    for property in exercise.properties:
        if property.finding.startswith("remark."):
            try:
                evidence = property.ask(Run(names, our_parts(exercise), Sizes(property.sizes), SEED))
            except Exception:
                continue
            if evidence is not None:
                said.append(property.message)
    return tuple(said)
