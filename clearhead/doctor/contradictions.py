"""What a description must not say: fields that contradict each other or the model are told before anything runs."""

from clearhead.doctor.describe import Description
from clearhead.errors import InputError

POSITIONS = ("absolute", "rotary", "alibi", "relative", "none")
REDUCTIONS = ("mean", "sum", "rows")


def require_consistent(spec: Description, vocab: int) -> None:
    """A description that contradicts itself cannot be examined."""
    problems = {
        f"positions={spec.positions!r}, wanted one of {', '.join(POSITIONS)}": spec.positions not in (None, *POSITIONS),
        f"pad={spec.pad!r}: the tokens are 0 to {vocab - 1}": any(
            pad is not None and not 0 <= pad < vocab
            for pad in (spec.pad if isinstance(spec.pad, tuple) else (spec.pad,))
        ),
        "pad_by_id without pad: which token is it?": spec.pad_by_id and spec.pad is None,
        f"label_smoothing={spec.label_smoothing}, wanted 0 or more and below 1": not 0 <= spec.label_smoothing < 1,
        f"window={spec.window}, wanted at least 1": spec.window is not None and spec.window < 1,
        "update without loss: there is nothing to compare it with": spec.update is not None and spec.loss is None,
        "reorder without cached": getattr(spec, "reorder", None) is not None and getattr(spec, "cached", None) is None,
        f"reduction={spec.reduction!r}, wanted one of {', '.join(REDUCTIONS)}": spec.reduction
        not in (None, *REDUCTIONS),
    }
    for problem, found in problems.items():
        if found:
            raise InputError(f"the description contradicts itself: {problem}")
