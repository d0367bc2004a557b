"""How a model is called: its inputs in order, what is fixed, what comes out. All of it is code that can be written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from clearhead.doctor.infer.masks import helpers
from clearhead.doctor.infer.output import idle_heads, is_logits, last_only, locate
from clearhead.doctor.infer.signature import Argument, tokens_of
from clearhead.doctor.infer.trial import LENGTH, ROWS, TARGET, Refused, Trial

VARIABLES = {1: ("tokens",), 2: ("source", "target")}
REALS = {1: ("real",), 2: ("source_real", "target_real")}


@dataclass(frozen=True)
class Calling:
    """One way to call a model."""

    inputs: tuple[Argument, ...]
    first: bool = False  # the sequence comes before the batch
    fixed: Mapping[str, str] = field(default_factory=dict)  # arguments that are always given, as code
    pattern: str = "{}"  # from the result to (B, S, anything)
    logits: bool = False  # is the last axis the vocabulary?
    adjacent: bool = True  # the inputs are the first parameters
    contiguous: bool = False  # slices must be copied first: the model uses view()

    @property
    def variables(self) -> tuple[str, ...]:
        return VARIABLES[len(self.inputs)]

    @property
    def reals(self) -> tuple[str, ...]:
        return REALS[len(self.inputs)]

    def call(self, more: Mapping[str, str] | None = None, rest: str = "") -> str:
        """The call itself, without what is done to its result."""
        given = [f"{name}.T.contiguous()" if self.first else name for name in self.variables]
        by_name = [one.name for one in self.inputs]
        # a second input that is not the second parameter must be named
        if len(given) == 2 and not self.adjacent:
            given[1] = f"{by_name[1]}={given[1]}"
        given += [f"{name}={code}" for name, code in {**self.fixed, **(more or {})}.items()]
        return f"model({', '.join(given)}{rest})"

    def before(self) -> list[str]:
        """Statements before the call."""
        return [f"{name} = {name}.contiguous()" for name in self.variables] if self.contiguous else []

    def code(self, more: Mapping[str, str] | None = None, rest: str = "") -> str:
        return self.pattern.format(self.call(more, rest))

    def function(self, more: Mapping[str, str] | None = None, raw: bool = False) -> str:
        """A function of the model, its inputs and where they are real, for trying."""
        body = self.call(more) if raw else self.code(more)
        lines = [f"def forward(model, {', '.join((*self.variables, *self.reals))}):", *self.before(), f"return {body}"]
        text = "\n    ".join(lines)
        return "\n".join([*helpers(text), text])


def samples(trial: Trial, count: int, seed: int = 1) -> tuple[Tensor, ...]:
    """Inputs to try with."""
    if count == 1:
        return (trial.tokens(seed=seed),)
    return trial.tokens(seed=seed), trial.tokens(TARGET, seed=seed + 50)


def real_of(values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(value.new_ones(value.shape).bool() for value in values)


def fixed_values(found: list[Argument], inputs: tuple[Argument, ...]) -> dict[str, str]:
    """Values for required arguments that are neither tokens nor masks; their roles tell them."""
    given = VARIABLES[len(inputs)][-1]
    values = {
        "offset": "0",
        "segments": f"torch.ones_like({VARIABLES[len(inputs)][0]})",
        "cache": "None",
        "use_cache": "False",
        "lengths": f"torch.full(({given}.size(0),), {given}.size(1))",
        "labels": given,
        "flag": "False",
        "other": "None",
        "memory": f"memory(model, {given})",
    }
    return {one.name: values[one.role] for one in found if one.required and one.role in values}


def ways(trial: Trial, found: list[Argument], masks: Mapping[str, str] | None = None) -> Iterator[Calling]:
    """Every way to call the model that gives outputs for each token, batch first before sequence first."""
    inputs = tuple(tokens_of(found))
    names = [one.name for one in found]
    adjacent = [names.index(one.name) for one in inputs] == list(range(len(inputs)))
    labels = next((one.name for one in found if one.role == "labels" and not one.required), None)
    fixed = {**fixed_values(found, inputs), **(masks or {})}
    values = samples(trial, len(inputs))
    length = LENGTH if len(inputs) == 1 else TARGET
    for first in (False, True):
        plain = Calling(inputs, first, fixed, adjacent=adjacent)
        given = plain.variables[-1]
        options = [plain]
        if labels is not None:  # models that give all logits only beside a loss
            options.append(replace(plain, fixed={**fixed, labels: f"{given}.T.contiguous()" if first else given}))
        for option in options:
            try:
                result = trial.run(option.function(raw=True), *values, *real_of(values))
            except Refused:
                continue
            located = locate(result, ROWS, length, trial.vocab, given, first)
            if option is plain and labels is not None and not any(logits for _, logits in located):
                continue
            yield from (replace(option, pattern=pattern, logits=logits) for pattern, logits in located[:3])
            if not located and last_only(result, ROWS, trial.vocab):
                trial.note("only the last position's logits are returned")


def oriented(trial: Trial, calling: Calling) -> bool:
    """Is this reading of the two axes the right one? A changed token must reach places of its row, not other rows."""
    values = samples(trial, len(calling.inputs))
    others, own = trial.rows_apart(calling.function(), (*values, *real_of(values)))
    return own or not others


def copied(trial: Trial, calling: Calling) -> Calling:
    """Where slices of token tensors are refused, copy them first: `view` is no bug, and probes slice."""
    longer = tuple(trial.tokens(value.size(1) + 1) for value in samples(trial, len(calling.inputs)))
    values = tuple(value[:, :-1] for value in longer)
    try:
        trial.output(calling.function(), *values, *real_of(values))
    except Refused:
        return replace(calling, contiguous=True)
    return calling


def with_head(trial: Trial, calling: Calling) -> Calling:
    """Where states come out, look for a head that is applied outside of forward."""
    if calling.logits:
        return calling
    values = (*samples(trial, len(calling.inputs)), *real_of(samples(trial, len(calling.inputs))))
    width = trial.output(calling.function(), *values).size(-1)
    heads = idle_heads(trial.model, lambda: trial.run(calling.function(), *values), width, trial.vocab)
    for name in heads:
        tried = replace(calling, pattern=f"model.{name}({calling.pattern})", logits=True)
        try:
            if is_logits(trial.output(tried.function(), *values).size(-1), trial.vocab):
                return tried
        except Refused:
            continue
    return calling
