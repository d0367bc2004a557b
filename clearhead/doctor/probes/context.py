"""The context can be filled to its last place, and what does not fit is refused or loses its beginning, not its end.

The model is built with a short context. Up to its length forward and generate must work; a prompt that is longer may
be refused, or cropped to its last tokens: the next token follows from them.
"""

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.generating import Inputs, behind, continued, never_said, prompts
from clearhead.doctor.subject import Subject, View, gap
from clearhead.errors import InputError

LENGTH = 16
NEW = 4


def accepts(subject: Subject, view: View, model: nn.Module, length: int) -> str | None:
    """None where an input of this length goes through; else what was raised."""
    try:
        subject.quiet(view, model, subject.tokens(1, length, seed=71))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None


def filled(subject: Subject, view: View, model: nn.Module) -> list[Finding]:
    """As many tokens as the context has places."""
    if accepts(subject, view, model, LENGTH - NEW) is not None:
        return []
    refused = accepts(subject, view, model, LENGTH)
    if refused is None:
        return []
    longest = max(n for n in range(LENGTH - NEW, LENGTH) if accepts(subject, view, model, n) is None)
    message = f"built with max_length={LENGTH}, the model takes {longest} {view.token}s, not {longest + 1}: {refused}"
    return [Finding("context.short", WARNING, message, {"longest": longest})]


def beyond(subject: Subject, view: View) -> list[Finding]:
    """Where more tokens than the context has places go through, they must not take each other's places."""
    if subject.spec.positions != "absolute" or "layers" not in subject.names:
        return []
    model, length = subject.model(layers=1, max_length=LENGTH), LENGTH + NEW
    tokens = subject.tokens(1, length, seed=72)
    try:
        whole = subject.quiet(view, model, tokens)
    except InputError as error:
        return [Finding("context.cropped", WARNING, f"{length} tokens in a context of {LENGTH}: {error}", {})]
    except Exception:
        return []
    rounding = 1e-12 * subject.spread(view)
    for first, second, how in ((1, LENGTH + 1, "they wrap around"), (LENGTH, LENGTH + 1, "they stop counting")):
        swapped = tokens.clone()
        swapped[:, first], swapped[:, second] = tokens[:, second], tokens[:, first]
        if gap(subject.quiet(view, model, swapped)[:, -1], whole[:, -1]) <= rounding:
            message = (
                f"built with max_length={LENGTH}, {length} tokens go through, but {view.token}s {first} and {second} "
                f"have the same position: {how}"
            )
            return [Finding("context.wraps", WARNING, message, {"how": how})]
    return []


def likely(
    subject: Subject, model: nn.Module, inputs: Inputs, tokens: Tensor, chosen: Tensor, never: list[int]
) -> bool:
    """Is the choice of every row as good as the best after these tokens? A cache in 16 bits may tip near ties."""
    try:
        logits = subject.whole(model, (*inputs[:-1], tokens.contiguous()))[:, -1]
    except Exception:
        return False
    return float(behind(logits, chosen, never).max()) <= max(
        subject.tolerance(subject.views[0]), 0.02 * float(logits.std())
    )


def explained(
    subject: Subject, model: nn.Module, inputs: Inputs, tokens: Tensor, chosen: Tensor, never: list[int]
) -> str:
    """Which part of the tokens the choice follows from: all, the last ones, the first ones, or none of these."""
    for count in range(tokens.size(1), min(tokens.size(1), LENGTH // 2) - 1, -1):
        if likely(subject, model, inputs, tokens[:, -count:], chosen, never):
            return "last"
    for count in (LENGTH, LENGTH - 1):
        if likely(subject, model, inputs, tokens[:, :count], chosen, never):
            return "first"
    return "nothing"


def generation(subject: Subject, model: nn.Module) -> list[Finding]:
    short = prompts(subject, 3, max(5, subject.prefix), seed=73)
    start = short[-1].size(1)
    try:
        with torch.no_grad():
            few = continued(subject, model, short, 2)
    except NotArmed:
        raise
    except Exception:
        raise NotArmed("generate() raised: see what the generate probe says") from None
    places, never = (start, start + 1), never_said(subject, model, short)
    if few.size(1) != start + 2 or not all(likely(subject, model, short, few[:, :t], few[:, t], never) for t in places):
        return []  # the generate probe says so
    long = prompts(subject, 3, LENGTH + NEW, seed=73)
    if isinstance(subject.spec, EncoderDecoder):
        return [*to_the_end(subject, model, short, never), *past_it(subject, model, short, LENGTH + NEW, never)]
    fitting = (long[-1][:, : LENGTH - NEW].contiguous(),)
    return [*to_the_end(subject, model, fitting, never), *past_it(subject, model, long, 2, never)]


def to_the_end(subject: Subject, model: nn.Module, inputs: Inputs, never: list[int]) -> list[Finding]:
    """A prompt and its continuation that together just fit."""
    view, start = subject.views[0], inputs[-1].size(1)
    if accepts(subject, view, model, LENGTH) is not None:
        return []
    try:
        with torch.no_grad():
            tokens = continued(subject, model, inputs, LENGTH - start)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else ""
        message = (
            f"in a context of {LENGTH}, generate() cannot continue {start} tokens by {LENGTH - start}: "
            f"{type(error).__name__}: {reason}"
        )
        return [Finding("context.generate", ERROR, message, {"raised": True})]
    for place in range(start, tokens.size(1)):
        if explained(subject, model, inputs, tokens[:, :place], tokens[:, place], never) != "last":
            message = (
                f"in a context of {LENGTH}, generate() picks token {place} by something else than the tokens so far"
            )
            return [Finding("context.generate", ERROR, message, {"raised": False})]
    return []


def past_it(subject: Subject, model: nn.Module, inputs: Inputs, count: int, never: list[int]) -> list[Finding]:
    """More tokens than fit are refused, or the last of them decide."""
    prompt = inputs[-1]
    try:
        with torch.no_grad():
            tokens = continued(subject, model, inputs, count)
    except Exception:
        return []
    if tokens.size(1) < LENGTH + 3 or tokens.size(1) <= prompt.size(1) + 1:
        return []  # it stopped in time
    place = tokens.size(1) - 2
    how = explained(subject, model, inputs, tokens[:, :place], tokens[:, place], never)
    if how == "last":
        return []
    kept = "the first tokens decide, and the last are not read" if how == "first" else "no part of its end explains it"
    message = f"after {place} tokens in a context of {LENGTH}, generate() continues wrongly: {kept}"
    severity = ERROR if how == "first" else WARNING
    return [Finding("context.crop", severity, message, {"how": how})]


def run(subject: Subject) -> list[Finding]:
    if "max_length" not in subject.names:
        raise NotArmed("build takes no max_length")
    subject.require_exact()
    model = subject.model(max_length=LENGTH)
    findings = []
    for view in subject.views:
        findings += filled(subject, view, model) or beyond(subject, view)
    if getattr(subject.spec, "generate", None) is not None:
        findings += generation(subject, model)
    return findings
