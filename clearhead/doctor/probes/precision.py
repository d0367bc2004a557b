"""16-bit errors do not grow with the position: tables of positions are computed in more than 16 bits.

The same weights run in bfloat16 and in float32; the difference late in a long input must be like that early in it.
"""

import torch

from clearhead.doctor.finding import WARNING, Finding, NotArmed
from clearhead.doctor.subject import Subject, shake

EARLY, LATE = slice(48, 112), slice(448, 512)


def run(subject: Subject) -> list[Finding]:
    view = next((view for view in subject.views if view.aligned), None)
    if view is None:
        raise NotArmed("no output belongs to a position")
    overrides = {"layers": 1} if "layers" in subject.names else {}
    tokens = subject.tokens(2, 512, seed=210)
    try:
        # the constructor may build tables: let it do so as a 16-bit run would
        narrow = shake(subject.raw(dtype=torch.float32, **overrides)).to(torch.bfloat16)
        wide = shake(subject.raw(dtype=torch.float32, **overrides)).to(torch.bfloat16).to(torch.float32)
        low, high = subject.quiet(view, narrow, tokens).float(), subject.quiet(view, wide, tokens)
    except (RuntimeError, ValueError, IndexError) as error:
        raise NotArmed(f"the model does not take 512 tokens in bfloat16: {type(error).__name__}") from error
    off = (low - high).abs().mean(dim=(0, 2))
    early, late = float(off[EARLY].mean()), float(off[LATE].mean())
    if not late > 4 * early:
        return []
    message = f"bfloat16 differs from float32 by {early:.2g} at positions 48 to 112 and by {late:.2g} at 448 to 512"
    # a warning: under autocast the tables would have stayed in float32
    return [Finding("precision.grows", WARNING, message, {"growth": late / max(early, 1e-30)})]
