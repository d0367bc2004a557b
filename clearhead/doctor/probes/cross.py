"""Every target token can look at every source token, in every layer, and source tokens at each other.

The attention weights are watched: source and target have different lengths, so their shape tells whose they are. A
causal mask that went to the encoder or to the cross-attention does not show outside, because the encoder mixes all.
"""

import torch
from torch import Tensor

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.subject import Subject, outputs
from clearhead.doctor.watch import Fused, Seen, Watch

SOURCE, TARGET = 9, 7


def let_through(call: Fused) -> Tensor:
    """Where a fused kernel may look, (S, T): True if any head of any row may."""
    queries, keys = call.query.size(-2), call.key.size(-2)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if call.causal:
        seen = seen.tril()
    if call.mask is not None:
        full = call.mask.expand(*call.mask.shape[:-2], queries, keys).reshape(-1, queries, keys)
        seen = seen & (full if full.dtype == torch.bool else full > -1e3).any(dim=0)
    return seen


def attentions(seen: Seen) -> list[tuple[Tensor, str]]:
    """Where each attention looks, in the order of the calls: (S, T) and the line."""
    plain = [(s.weights.flatten(0, -3).ne(0).any(dim=0), s.where) for s in seen.softmaxes]
    return plain + [(let_through(call), call.where) for call in seen.fused]


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
    looks = attentions(watch.seen)
    over = {
        "encoder": [look for look in looks if tuple(look[0].shape) == (SOURCE, SOURCE)],
        "cross": [look for look in looks if tuple(look[0].shape) == (TARGET, SOURCE)],
        "self": [look for look in looks if tuple(look[0].shape) == (TARGET, TARGET)],
    }
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
