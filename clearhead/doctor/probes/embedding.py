"""Where embeddings are multiplied by √d_model, it is √d_model and not its 16-bit neighbour."""

import math

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.subject import Subject
from clearhead.doctor.watch import Watch


def run(subject: Subject) -> list[Finding]:
    view, tokens = subject.views[0], subject.tokens(2)
    with Watch() as watch:
        subject.quiet(view, subject.model(), tokens)
    lookups = {(out.data_ptr(), out.shape): out for _, _, out in watch.seen.lookups}
    if not lookups:
        raise NotArmed("no embedding lookup was seen")
    for given, factor, where in watch.seen.scalings:
        out = lookups.get((given.data_ptr(), given.shape))
        if out is None:
            continue
        root = math.sqrt(out.size(-1))
        off = abs(factor / root - 1)
        if 1e-6 < off < 2e-2:
            message = f"embeddings are multiplied by {factor:.6g}; √{out.size(-1)} is {root:.6g}: the scale was rounded"
            return [Finding("embedding.scale", ERROR, message, {"off": off}, (where,))]
    return []
