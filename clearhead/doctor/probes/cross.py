"""Every target token can look at every source token, in every layer, and source tokens at each other.

The attention weights are watched: source and target have different lengths, so their shape tells whose they are. A
causal mask that went to the encoder or to the cross-attention does not show outside, because the encoder mixes all.
"""

import torch
from torch import Tensor

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.subject import Subject, outputs
from clearhead.doctor.watch import Seen, Watch

SOURCE, TARGET = 9, 7


def attentions(seen: Seen, queries: int, keys: int) -> list[tuple[Tensor, str]]:
    """Where each attention of that size looks, (S, T), in the order of the calls, and the line."""
    return [(visible.any(dim=0), where) for visible, where in seen.looks(queries, keys)]


def blind(kind: str, looks: list[tuple[Tensor, str]]) -> Finding | None:
    for layer, (visible, where) in enumerate(looks):
        if visible.all():
            continue
        i, j = (~visible).nonzero()[0].tolist()
        causal = bool((visible == torch.ones_like(visible).tril()).all())
        who = f"target token {i}" if kind == "cross" else f"source token {i}"
        message = (
            f"in attention {layer} over the source, {who} gives no weight to source token {j}, though none is padding "
            f"({int((~visible).sum())} of {visible.numel()} pairs are blind{', as under a causal mask' * causal})"
        )
        evidence = {"kind": kind, "layer": layer, "causal": causal}
        return Finding(f"cross.{'blind' if kind == 'cross' else 'encoder'}", ERROR, message, evidence, (where,))
    return None


def run(subject: Subject) -> list[Finding]:
    if not isinstance(subject.spec, EncoderDecoder):
        raise NotArmed("there is no source")
    model = subject.model()
    source, target = subject.tokens(2, SOURCE, seed=64), subject.tokens(2, TARGET, seed=65)
    # with gradients: without them PyTorch's own layers run as one fused operation
    with torch.enable_grad(), Watch() as watch:
        outputs(subject.spec.forward(model, source, target))
    sizes = {"encoder": (SOURCE, SOURCE), "cross": (TARGET, SOURCE), "self": (TARGET, TARGET)}
    over = {kind: attentions(watch.seen, *size) for kind, size in sizes.items()}
    if not over["cross"]:
        raise NotArmed("no attention of the target over the source was seen")
    findings = [blind(kind, over[kind]) for kind in ("cross", "encoder") if subject.spec.window is None]
    if len(over["cross"]) < len(over["self"]):
        message = (
            f"{len(over['self'])} attentions look at the target, but only {len(over['cross'])} at the source: "
            "some layers never look there"
        )
        findings.append(Finding("cross.layers", WARNING, message, {}))
    return [finding for finding in findings if finding is not None]
