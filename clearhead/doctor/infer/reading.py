"""What kind of model this is and how its masks are meant, found by trying: who sees whom under which mask.

A reading is taken only where trying shows it. Where two are possible, the one that claims less is taken, and the
report says what to write to claim more: a wrong guess must never look like a bug of the model.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from clearhead.doctor.infer.calling import Calling, copied, oriented, real_of, samples, ways, with_head
from clearhead.doctor.infer.masks import FORMS, SQUARE, Form
from clearhead.doctor.infer.signature import Argument
from clearhead.doctor.infer.trial import Refused, Sight, Trial

CAUSAL_NAMES = r"gpt|causal|decoder|llama|mistral|qwen|gemma|lmhead|autoregress"
OTHER_NAMES = r"bert|masked|classif|encoder|tagg|embedder"
CAUSAL_CODE = r"\btril\(|\btriu\(|is_causal\s*=\s*True|subsequent|look_ahead"


@dataclass
class Reading:
    """A way to run the model, and what is known of its masks."""

    kind: str  # CausalLM, Encoder or EncoderDecoder
    calling: Calling
    padding: dict[str, dict[str, str]] = field(default_factory=dict)  # real -> arguments that hide padding
    needs_real: bool = False  # masks must always be given
    assumed: list[str] = field(default_factory=list)
    open: list[tuple[str, str, str]] = field(default_factory=list)  # probe, why it is not armed, the line to add


def read(trial: Trial, found: list[Argument], owner: Any) -> Reading | None:
    """The best reading, or None if no call gives outputs for each token."""
    wanted = [one for one in found if one.role in ("mask", "padding") and one.required]
    readings = masked(trial, found, wanted, owner) if wanted else unmasked(trial, found, owner)
    if readings is None:
        return None
    return replace(readings, calling=copied(trial, with_head(trial, readings.calling)))


def sights(trial: Trial, calling: Calling, masks: Mapping[str, str] | None = None) -> list[Sight]:
    """What the outputs see of each input."""
    values = samples(trial, len(calling.inputs))
    code = calling.function(masks)
    return [trial.sight(code, (*values, *real_of(values)), which) for which in range(len(values))]


def hides(trial: Trial, calling: Calling, masks: Mapping[str, str], which: int) -> float:
    """How much what is masked out still moves the outputs, relative to what is not: 0 hidden, 1 plainly visible.

    The hole is in the middle, so that it shows in causal models too and no position is left with nothing to see.
    """
    values, code = samples(trial, len(calling.inputs)), calling.function(masks)
    reals = [real.clone() for real in real_of(values)]
    reals[which][:, 2:4] = False
    before = trial.output(code, *values, *reals)
    sizes = []
    for places in (slice(2, 4), slice(0, 2)):
        changed = [value.clone() for value in values]
        changed[which][:, places] = trial.other(changed[which][:, places])
        after = trial.output(code, *changed, *reals)
        difference = (before - after).abs().amax(dim=-1)
        if which == len(values) - 1:  # outputs of the masked places themselves do not count
            difference = difference[:, 4:]
        sizes.append(float(difference.mean()))
    return sizes[0] / max(sizes[1], 1e-12)


def whole_is_plain(trial: Trial, calling: Calling, masks: Mapping[str, str]) -> bool:
    """Does a mask that hides nothing change nothing?"""
    values = samples(trial, len(calling.inputs))
    given = (*values, *real_of(values))
    return not bool(
        trial.moved(trial.output(calling.function(), *given), trial.output(calling.function(masks), *given)).any()
    )


# ---- models that need no mask -----------------------------------------------------------------------------------


def unmasked(trial: Trial, found: list[Argument], owner: Any) -> Reading | None:
    """Models that run on tokens alone; masks they can take are tried afterwards (see `optional`)."""
    callings = list(ways(trial, found))
    fitting = [one for one in callings if safely(oriented, trial, one)]
    if not fitting:
        return None
    calling = next((one for one in fitting if one.logits), fitting[0])
    if len(calling.inputs) == 2:
        return two_inputs(trial, calling, found)
    (sight,) = sights(trial, calling)
    if sight.causal:
        return Reading("CausalLM", calling, assumed=["causal: by trying, no output moves when a later token changes"])
    masks = [one for one in found if one.role == "mask" and not one.required]
    given = causal_by_mask(trial, calling, masks, calling.variables[0])
    evidence = meant_causal(trial.model, owner)
    if given is not None and (evidence or padding_form(trial, calling, [given[0]], 0) is None):
        name, form, code = given
        reading = Reading("CausalLM", replace(calling, fixed={**calling.fixed, name: code}))
        reading.assumed.append(f"causal: {name} takes {SQUARE[form.shape]} masks, {form.meaning}, and is always given")
        return reading
    if sight.leaning or evidence:
        why = "most later tokens are hidden" if sight.leaning else f"meant to be causal: {evidence}"
        note = f"causal, though by trying outputs move when later tokens change ({why})"
        return Reading("CausalLM", calling, assumed=[note])
    note = "an encoder: every output moves when any token changes; for a causal model write doctor.CausalLM"
    return Reading("Encoder", calling, assumed=[note])


def two_inputs(trial: Trial, calling: Calling, found: list[Argument]) -> Reading:
    """A source and a target: the target must be causal, by itself or through a mask that can be given."""
    reading = Reading("EncoderDecoder", calling, assumed=["two token inputs: a source and a target"])
    _, target = sights(trial, calling)
    if target.causal:
        return reading
    masks = [one for one in found if one.role == "mask" and not one.required and one.side != "source"]
    given = causal_by_mask(trial, calling, masks, "target")
    if given is not None:
        name, form, code = given
        reading.calling = replace(calling, fixed={**calling.fixed, name: code})
        reading.assumed.append(f"{name} takes {SQUARE[form.shape]} masks, {form.meaning}, and is always given")
    return reading


def causal_by_mask(trial: Trial, calling: Calling, masks: list[Argument], given: str) -> tuple[str, Form, str] | None:
    """An optional mask and the form of it that hides the future."""
    for mask in masks:
        for form in FORMS:
            code = form.attention(given)
            seen = safely(sights, trial, calling, {mask.name: code})
            if seen is not None and seen[-1].causal:
                return mask.name, form, code
    return None


def meant_causal(model: nn.Module, owner: Any) -> str:
    """What says that a model is meant to be causal: its name, a way to generate, a triangle; "" if nothing does."""
    name = getattr(owner, "__name__", type(model).__name__)
    if re.search(OTHER_NAMES, name.lower()):
        return ""
    if re.search(CAUSAL_NAMES, name.lower()):
        return f"it is called {name}"
    if callable(getattr(model, "generate", None)):
        return "it can generate"
    for label, buffer in model.named_buffers():
        square = buffer.dim() >= 2 and buffer.size(-1) == buffer.size(-2) > 8
        if square and bool((buffer.reshape(-1, *buffer.shape[-2:])[0].triu(1) == 0).all()) and bool(buffer.any()):
            return f"{label} is a lower triangle"
    for kind in {type(module) for module in model.modules()}:
        if not kind.__module__.startswith("torch.") and re.search(CAUSAL_CODE, source_of(kind)):
            return f"{kind.__name__} makes a causal mask"
    return ""


def source_of(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


def safely(work: Any, *given: Any) -> Any:
    """What the work gives, or None where the model refuses."""
    try:
        return work(*given)
    except Refused:
        return None


# ---- masks that can be given -------------------------------------------------------------------------------------


def padding_form(trial: Trial, calling: Calling, names: list[str], which: int) -> tuple[Form, bool] | None:
    """The form in which these arguments hide padding, and whether it hides all of it; None if none is plain.

    A form that hides most, while its opposite hides least, is what was meant: what remains is for the probes.
    """
    real = calling.reals[which]
    partly: list[Form] = []
    for form in FORMS:
        masks = {name: form.padding(real) for name in names}
        left = safely(hides, trial, calling, masks, which)
        if left is None:
            continue
        if left < 1e-4 and safely(whole_is_plain, trial, calling, masks):
            return form, True
        if left < 0.5:
            partly.append(form)
    return (partly[0], False) if len({form.points_at for form in partly}) == 1 else None


def optional(trial: Trial, reading: Reading, found: list[Argument]) -> None:
    """Try the masks that the model can take, and write down those that hide padding."""
    calling = reading.calling
    free = [one for one in found if not one.required and one.name not in calling.fixed]
    for which, real in enumerate(calling.reals):
        group = chosen([one for one in free if one.role in ("mask", "padding")], which, len(calling.inputs))
        if not group:
            continue
        options = [group] if len(group) == 1 else [group, *([one] for one in group)]
        for names in options:
            form = padding_form(trial, calling, names, which)
            if form is not None:
                reading.padding[real] = {name: form[0].padding(real) for name in names}
                whole = "" if form[1] else "; it hides most of the padding, not all"
                reading.assumed.append(f"{', '.join(names)}: a padding mask {form[0]}{whole}")
                break
        else:
            reason = f"{', '.join(group)} was given in {len(FORMS)} forms; none of them hid padding"
            parameter = ", ".join((*calling.variables, *calling.reals[: which + 1]))
            line = f"forward=lambda model, {parameter}: model({', '.join(calling.variables)}, {group[0]}=...)"
            reading.open.append(("padding", reason, line))


def chosen(masks: list[Argument], which: int, inputs: int) -> list[str]:
    """The masks that belong to an input; those called padding, where there are such."""
    side = ("source", "target")[which]
    mine = masks if inputs == 1 else [one for one in masks if (one.side or "source") == side]
    padding = [one.name for one in mine if one.role == "padding"]
    return padding or [one.name for one in mine]


# ---- models that need a mask --------------------------------------------------------------------------------------


def masked(trial: Trial, found: list[Argument], wanted: list[Argument], owner: Any) -> Reading | None:
    """Models that cannot run without a mask: every family of forms is tried, the best is taken."""
    best: tuple[float, Reading] | None = None
    for form in FORMS:
        for causal in (True, False):
            scored = safely(attempt, trial, found, wanted, form, causal, owner)
            if scored is not None and (best is None or scored[0] > best[0]):
                best = scored
                if best[0] >= 7.0:  # two inputs, and all of it holds
                    return best[1]
    if best is None:
        plain = {one.name: "None" for one in wanted}
        reading = unmasked(trial, [one if one not in wanted else replace(one, required=False) for one in found], owner)
        if reading is not None:
            reading.calling = replace(reading.calling, fixed={**reading.calling.fixed, **plain})
        return reading
    return best[1]


def attempt(
    trial: Trial, found: list[Argument], wanted: list[Argument], form: Form, causal: bool, owner: Any
) -> tuple[float, Reading] | None:
    """One family of forms, and how well it does: the future hidden, everything else seen, padding hidden."""
    inputs = 2 if len([one for one in found if one.role == "tokens" and one.required]) >= 2 else 1
    if inputs == 2 and not causal:
        return None
    masks = {one.name: mask_code(one, form, causal, inputs, wanted) for one in wanted}
    calling = next((one for one in ways(trial, found, masks) if oriented(trial, one)), None)
    if calling is None:
        return None
    reading = Reading(
        "EncoderDecoder" if inputs == 2 else "CausalLM" if causal else "Encoder", calling, needs_real=True
    )
    seen = sights(trial, calling)
    score = 0.0
    if causal:
        score += 2.0 * seen[-1].causal + 1.0 * (seen[-1].leaning and not seen[-1].causal)
    if inputs == 2 or not causal:
        score += 1.0 * (seen[0].anything > 0.9)
    for which, real in enumerate(calling.reals):
        if any(real in code for code in masks.values()):
            left = safely(hides, trial, calling, {}, which)
            score += 2.0 * (left is not None and left < 1e-4)
    if inputs == 1:  # both readings may work: what the model is called decides
        score += 0.5 * (bool(meant_causal(trial.model, owner)) == causal)
    said = ", ".join(masks)
    square = f" (the square ones {SQUARE[form.shape]})" if causal else ""
    reading.assumed.append(f"{said}: masks of shape {form}{square}, as far as trying shows")
    return score, reading


def mask_code(mask: Argument, form: Form, causal: bool, inputs: int, wanted: list[Argument]) -> str:
    """What a required mask gets."""
    source, target = ("source", "target") if inputs == 2 else ("tokens", "tokens")
    source_real, target_real = ("source_real", "target_real") if inputs == 2 else ("real", "real")
    of_target = mask.side == "target" or (inputs == 1 and causal)
    if mask.role == "padding":
        return form.padding(target_real if mask.side == "target" else source_real)
    if of_target:
        return form.attention(target, target_real)
    if any(one.role == "padding" for one in wanted):
        return form.everything(source)  # padding has its own arguments beside this one
    return form.padding(source_real)
