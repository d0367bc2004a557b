"""Decoding step by step: the cache that a forward takes or keeps, and the model's own `generate`.

A reading of the cache is taken if its first piece gives the logits of the full pass: whoever reads the first piece
right has read the arguments right, and what goes wrong afterwards is for the probe. A cache that lives inside the
model serves one request, so every request gets a copy of the model.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from clearhead.doctor.infer.constructor import Unknown, plan_call
from clearhead.doctor.infer.output import is_logits, parts
from clearhead.doctor.infer.reading import safely
from clearhead.doctor.infer.signature import Argument
from clearhead.doctor.infer.trial import Refused, Trial
from clearhead.doctor.infer.write import Draft

PROMPT, MORE = 4, 3
MATCH = 1e-3  # of the outputs' spread, in float32


def add(draft: Draft, trial: Trial, given: list[Argument]) -> None:
    """Add `cached` and `generate` to the description of a language model, where trying shows how."""
    if draft.reading.kind != "CausalLM":
        return
    add_cached(draft, trial, given)
    add_generate(draft, trial)


# ---- the cache ----------------------------------------------------------------------------------------------------


def add_cached(draft: Draft, trial: Trial, given: list[Argument]) -> None:
    free = {one.role: one.name for one in given if one.role in ("cache", "use_cache", "offset")}
    if not free or draft.reading.calling.first:
        return
    for code, used, how in readings(draft, trial, free):
        head, body = code.split("\n", 1)
        code = "\n".join([head, *(f"    {line}" for line in draft.reading.calling.before()), body])
        names = {**trial.names, **{name: getattr(draft.loaded.module, name) for name in used}}
        outcome = tried(TrialWith(trial, names), code, draft)
        if outcome:
            draft.fields["cached"], draft.built.plan.used = "cached", [*draft.built.plan.used, *used]
            draft.functions.append(code)
            draft.reading.assumed.append(f"cached: {how}; {outcome}")
            return
    line = "cached=lambda model, tokens, cache: (logits, cache)"
    named = ", ".join(free.values())
    reason = f"how {named} {'is' if len(free) == 1 else 'are'} used could not be found out by trying"
    draft.reading.open.append(("cache", reason, line))


class TrialWith(Trial):
    """The same model with further names for its code."""

    def __init__(self, trial: Trial, names: dict[str, Any]) -> None:
        self.__dict__.update(trial.__dict__)
        self.names, self.calls = names, {}


def readings(draft: Draft, trial: Trial, free: dict[str, str]) -> Iterator[tuple[str, list[str], str]]:
    """Ways in which a cache may work: the code, names it uses, and in words."""
    calling, pattern = draft.reading.calling, draft.reading.calling.pattern
    flag = {free["use_cache"]: "True"} if "use_cache" in free else {}
    fixed = {name: code for name, code in calling.fixed.items() if name not in free.values()}

    def call(more: dict[str, str]) -> str:
        return (
            f"model({', '.join(['tokens', *(f'{name}={code}' for name, code in {**fixed, **flag, **more}.items())])})"
        )

    own_copy = "    model, {extra} = (copy.deepcopy(model), {start}) if cache is None else cache"
    offset = {free["offset"]: "length"} if "offset" in free else {}
    if "cache" in free:
        if not offset:
            first = safely(lambda: trial.run(f"def first(model, tokens):\n    return {call({free['cache']: 'None'})}",
                                             trial.tokens(PROMPT)))  # fmt: skip
            for where in kept(first):
                body = f"    out = {call({free['cache']: 'cache'})}\n    return {pattern.format('out')}, {where}"
                yield (
                    f"def cached(model, tokens, cache):\n{body}",
                    [],
                    f"{free['cache']} takes what comes back in {where}",
                )
        for name, made in cache_classes(draft, trial):
            start = own_copy.format(extra="kept", start=made)
            if offset:
                start = own_copy.format(extra="kept, length", start=f"{made}, 0").replace("(copy.", "(copy.")
            after = "kept, length + tokens.size(1)" if offset else "kept"
            body = f"{start}\n    out = {call({free['cache']: 'kept', **offset})}"
            yield (
                f"def cached(model, tokens, cache):\n{body}\n    return {pattern.format('out')}, (model, {after})",
                [name],
                f"{free['cache']} takes a {name}",
            )
    if "use_cache" in free and "cache" not in free and not offset:
        resets = [name for name in dir(trial.model) if re.search(r"reset.*cache|clear.*cache|reset_?state", name)]
        reset = f"\n        model.{resets[0]}()" if resets else ""
        body = f"    if cache is None:\n        model = copy.deepcopy(model){reset}\n    else:\n        model = cache"
        yield (
            f"def cached(model, tokens, cache):\n{body}\n    out = {call({})}\n"
            f"    return {pattern.format('out')}, model",
            [],
            f"with {free['use_cache']}=True the model keeps it, so each request gets a copy of the model",
        )
    if offset and "cache" not in free:
        start = own_copy.format(extra="length", start="0")
        body = (
            f"{start}\n    out = {call(offset)}\n    return {pattern.format('out')}, (model, length + tokens.size(1))"
        )
        how = f"{free['offset']} counts the tokens read, and the model keeps them; each request gets a copy of it"
        yield f"def cached(model, tokens, cache):\n{body}", [], how


def kept(result: Any) -> list[str]:
    """Where in a result a new cache may be: `out[1]`, `out.past_key_values`."""
    if isinstance(result, tuple | list):
        return [f"out[{number}]" for number, part in enumerate(result) if number and alive(part)]
    names = ("past_key_values", "cache", "presents", "kv_cache", "past", "mems", "new_cache", "state")
    if isinstance(result, dict):
        return [f"out[{name!r}]" for name in names if alive(result.get(name))]
    return [f"out.{name}" for name in names if alive(getattr(result, name, None))]


def alive(part: Any) -> bool:
    """Could this be a cache? Something that holds tensors, or an object."""
    if part is None or isinstance(part, int | float | str):
        return False
    if isinstance(part, tuple | list | dict):
        return any(True for _ in parts(part)) or bool(part)
    return not isinstance(part, Tensor) or part.dim() >= 3


def cache_classes(draft: Draft, trial: Trial) -> Iterator[tuple[str, str]]:
    """Classes of the user's module that are called caches, and code that makes one."""
    for name, value in vars(draft.loaded.module).items():
        if isinstance(value, type) and "cache" in name.lower() and not issubclass(value, torch.nn.Module):
            try:
                plan = plan_call(value, name, lambda parameter, part: None)
            except Unknown:
                continue
            sizes = draft.built.sizes
            code = plan.code
            for size in plan.sizes():
                if size not in sizes:
                    break
                code = re.sub(rf"(?<==){size}\b", repr(sizes[size]), code)
            else:
                yield name, code


def tried(trial: Trial, code: str, draft: Draft) -> str:
    """What trying shows: "" if the reading is wrong, else what to say of it."""
    tokens = trial.tokens(PROMPT + MORE, seed=9)
    values = (tokens, torch.ones_like(tokens, dtype=torch.bool))
    full = safely(trial.output, draft.reading.calling.function(), *values)
    if full is None:
        return ""
    cache: Any = None
    for number, piece in enumerate(tokens.split([PROMPT, *[1] * MORE], dim=1)):
        end = PROMPT + number
        try:
            out, cache = trial.run(code, piece, cache)
        except (Refused, TypeError, ValueError) as error:
            return (
                f"the first piece agrees with the full pass, then it raised {str(error).splitlines()[0]}"
                if number
                else ""
            )
        right = (
            isinstance(out, Tensor)
            and out.dim() == 3
            and is_logits(out.size(-1), trial.vocab)
            and float((out[:, -1].double() - full[:, end - 1]).abs().max()) <= MATCH * float(full.std())
        )
        if not right and number == 0:
            return ""
        if not right:
            # without memory of the first piece no cache was in use: the reading is wrong, not the model
            return "the first piece agrees with the full pass, later ones do not" if remembers(trial, code) else ""
    return "it agrees with the full pass"


def remembers(trial: Trial, code: str) -> bool:
    """Does a second piece depend on the first?"""
    outs = []
    for seed in (9, 10):
        _, cache = trial.run(code, trial.tokens(PROMPT, seed=seed), None)
        outs.append(trial.run(code, trial.tokens(1, seed=8), cache)[0].double())
    return bool(trial.moved(outs[0], outs[1]).any())


# ---- generating ---------------------------------------------------------------------------------------------------

GREEDY = {"do_sample": "False", "top_k": "1", "greedy": "True", "sample": "False", "use_sampling": "False"}
COUNT = r"max_?(new_?)?(tokens|length|len|gen)|num_?(tokens|steps)|steps|count|n_?tokens|new_tokens|max_new"


def add_generate(draft: Draft, trial: Trial) -> None:
    """The model's own `generate`, if it can be made greedy and takes a batch."""
    method = getattr(trial.model, "generate", None)
    if not callable(method):
        return
    taken = [name for name in inspect.signature(method).parameters if name != "self"]
    count = next((name for name in taken[1:] if re.search(COUNT, name)), None)
    options = [f"{name}={value}" for name, value in GREEDY.items() if name in taken]
    add = "generate=lambda model, tokens, count: ...   # the most likely token each time"
    open_ = ("generate", "how generate() is called could not be found out", add)
    if count is None:
        draft.reading.open.append(open_)
        return
    for extra in ([], options) if options else ([],):
        given = ", ".join(["tokens", f"{count}=count", *extra])
        code = f"def generate(model, tokens, count):\n    return model.generate({given})"
        made = continuations(trial, code)
        if len(made) > 1:
            open_ = ("generate", "generate() draws at random, and no argument that would make it greedy was found", add)
        if len(made) == 1:
            draft.fields["generate"] = "generate"
            draft.functions.append(code)
            draft.reading.assumed.append(f"generate({given}): by trying, the same whatever the random state")
            return
    draft.reading.open.append(open_)


def continuations(trial: Trial, code: str) -> list[Tensor]:
    """What it makes of one batch under three random states: one result without chance, none if it does not run."""
    prompt, results = trial.tokens(5, rows=2, seed=11), []
    if code not in trial.calls:
        safely(trial.run, code, prompt.clone(), 1)
    for seed in (0, 1, 2):
        torch.manual_seed(seed)
        try:
            with torch.no_grad():
                results.append(trial.calls[code](trial.model, prompt.clone(), 4))
        except Exception:
            return []
    if not all(isinstance(out, Tensor) and tuple(out.shape) == (2, 9) for out in results):
        return []
    return results[:1] + [out for out in results[1:] if not torch.equal(results[0], out)]
