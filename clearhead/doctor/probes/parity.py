"""With reference weights the outputs are the reference's. Some bugs show nowhere else: they only rename features."""

import torch

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, gap, outputs


def run(subject: Subject) -> list[Finding]:
    if subject.spec.reference is None:
        raise NotArmed("no reference described")
    reference = subject.spec.reference()
    model = subject.construct(0, {**subject.sizes, **reference.sizes})
    model = model.to(reference.output.dtype).eval()
    try:
        model.load_state_dict(dict(reference.weights))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        return [Finding("parity.weights", ERROR, f"the reference weights do not load: {reason}", {})]
    with torch.no_grad():
        out = outputs(subject.spec.forward(model, *reference.inputs))
    size = gap(out, reference.output)
    spread = float(reference.output.double().std())
    limit = 1e-9 if reference.output.dtype == torch.float64 else 1e-4
    if size <= limit * spread:
        return []
    message = f"with the reference weights the outputs differ from the reference by {show(size)}; spread {show(spread)}"
    return [Finding("parity.differs", ERROR, message, {"relative": size / spread})]
