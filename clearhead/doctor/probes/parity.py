"""With reference weights the outputs are the reference's. Some bugs show nowhere else: they only rename features."""

import torch

from clearhead.doctor.finding import ERROR, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.results import outputs
from clearhead.doctor.subject import Subject, gap


def run(subject: Subject) -> list[Finding]:
    described = subject.spec.reference
    if described is None:
        raise NotArmed("no reference described")
    reference = subject.call("reference", lambda _: described(), None)
    wanted = outputs(reference.output)
    model = subject.construct(0, {**subject.sizes, **reference.sizes}).to(wanted.dtype).eval()
    try:
        model.load_state_dict(dict(reference.weights))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        return [Finding("parity.weights", ERROR, f"the reference weights do not load: {reason}", {})]
    with torch.no_grad():
        out = subject.forward(model, reference.inputs)
    size = gap(out, wanted)
    spread = float(wanted.double().std())
    limit = 1e-9 if wanted.dtype == torch.float64 else 1e-4
    if size <= limit * spread:
        return []
    message = f"with the reference weights the outputs differ from the reference by {show(size)}; spread {show(spread)}"
    grouped = "kv_heads" in subject.names and subject.sizes.get("kv_heads") != subject.sizes.get("heads")
    evidence = {"relative": size / spread, "grouped": grouped}
    return [Finding("parity.differs", ERROR, message, evidence)]
