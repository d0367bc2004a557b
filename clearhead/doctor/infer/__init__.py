"""A description that nobody had to write: sizes from the constructor, the rest from the signature and by trying.

Each step proposes code and runs it on a small model; what works is kept as code, what was assumed and what could not
be found out is said. Inference runs the user's code, and nothing it raises escapes: it is told with its line.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.doctor.describe import Description
from clearhead.doctor.examine import unchanged
from clearhead.doctor.github import place_of
from clearhead.doctor.infer import learning, padding_id, steps
from clearhead.doctor.infer.builder import Built, builder, resolve
from clearhead.doctor.infer.load import Loaded, quiet
from clearhead.doctor.infer.raised import told
from clearhead.doctor.infer.reading import Reading, optional, read
from clearhead.doctor.infer.signature import arguments
from clearhead.doctor.infer.trial import Trial
from clearhead.doctor.infer.write import Draft, source
from clearhead.errors import InputError


@dataclass(frozen=True)
class Inferred:
    """A description with its code, what it assumes, and what it leaves open."""

    spec: Description
    code: str
    assumed: tuple[str, ...] = ()
    open: tuple[tuple[str, str, str], ...] = field(default=())  # probe, why it is not armed, the line to add
    place: str = ""  # file:line of the model's class


def infer(found: Any, name: str, loaded: Loaded, folder: Path | None = None) -> Inferred:
    """Describe a class, a factory or a model; `folder` is where the code would be written (default: here)."""
    folder = (folder or Path.cwd()).resolve()
    with quiet(), unchanged():
        try:
            draft = draft_of(found, name, loaded)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{name} could not be described: {told(error)}") from error
        code = source(draft, folder)
        space: dict[str, Any] = {"__name__": "inferred", "__file__": str(folder / "spec.py")}
        exec(compile(code, "<inferred description>", "exec"), space)
    place = place_of(type(draft.built.model))
    return Inferred(space["spec"], code, tuple(draft.reading.assumed), tuple(draft.reading.open), place)


def draft_of(found: Any, name: str, loaded: Loaded) -> Draft:
    built = builder(found, name, loaded)
    vocab = vocabulary(built)
    names = {one: resolve(loaded, one) for one in built.plan.used}
    trial = Trial(built.model, vocab, names)
    given = arguments(built.model)
    if not any(one.role == "tokens" for one in given):
        raise InputError(
            f"{name} has no forward that takes tokens; add how it is run: forward=lambda model, tokens: ..."
        )
    reading = read(trial, given, type(built.model))
    if reading is None:
        raise InputError(refusal(name, trial))
    if reading.kind != "Encoder" and not reading.calling.logits:
        raise InputError(
            f"{name} gives states, not logits over {vocab} tokens, and no head was found; "
            f"add it: forward=lambda model, {', '.join(reading.calling.variables)}: ..."
        )
    optional(trial, reading, given)
    pad = padding_id.find(trial, reading, built.plan.padding)
    reading.assumed[:0] = said(built, loaded, reading)
    draft = Draft(name, loaded, built, reading)
    if pad is not None:
        draft.fields["pad"] = repr(pad)
    steps.add(draft, trial, given)
    learning.add(draft, trial, given)
    return draft


def vocabulary(built: Built) -> int:
    if "vocab" in built.sizes:
        return int(built.sizes["vocab"])
    tables = [module.num_embeddings for module in built.model.modules() if isinstance(module, nn.Embedding)]
    if not tables:
        raise InputError("no embedding was found, so tokens cannot be made; describe it with sizes={'vocab': ...}")
    return max(tables[:2])


def refusal(name: str, trial: Trial) -> str:
    """Why no call gave outputs for each token."""
    reason = f"forward raised {told(trial.problem)}" if trial.problem is not None else "it gives no (B, S, ...) outputs"
    notes = f" ({'; '.join(trial.notes)})" if trial.notes else ""
    return f"{name} was built, but could not be called: {reason}{notes}; add how: forward=lambda model, tokens: ..."


def said(built: Built, loaded: Loaded, reading: Reading) -> list[str]:
    """What was assumed about building and calling."""
    lines = []
    if built.through:
        lines.append(f"built with {built.through}()")
    lines.append(f"sizes {', '.join(built.sizes) or '(none can be chosen)'}: {built.plan.code}")
    lines += [f"{name}={code}: a guess" for name, code in built.plan.guessed.items()]
    lines += [f"{name} is left uninitialised by the constructor: small random numbers" for name in built.plan.bare]
    lines += [f"{name} is not installed: a stand-in that raises when used took its place" for name in loaded.absent]
    calling = reading.calling
    if calling.first:
        lines.append("sequence first: inputs are transposed")
    lines.append(f"outputs: {calling.pattern.format('model(...)')}{'' if calling.logits else ' (states, not logits)'}")
    return lines
