"""How a model learns: a loss that its forward computes from labels, and an optimizer that it makes itself.

The loss is read off by value: given labels that have nothing to do with the tokens, it is the cross-entropy of the
outputs with the labels as they are, or with the labels one place further on. What is neither is left alone.
"""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.doctor.infer.calling import real_of, samples
from clearhead.doctor.infer.output import parts
from clearhead.doctor.infer.reading import safely
from clearhead.doctor.infer.signature import Argument
from clearhead.doctor.infer.trial import Refused, Trial
from clearhead.doctor.infer.write import Draft

CLOSE = 1e-4
VALUES = {  # arguments of configure_optimizers
    "weight_decay": "0.1",
    "learning_rate": "1e-3",
    "lr": "1e-3",
    "betas": "(0.9, 0.95)",
    "device_type": '"cpu"',
    "device": '"cpu"',
}


def add(draft: Draft, trial: Trial, given: list[Argument]) -> None:
    """Add `loss` and `optimizer` to the description, where trying shows how."""
    add_loss(draft, trial, given)
    add_optimizer(draft, trial)


def add_loss(draft: Draft, trial: Trial, given: list[Argument]) -> None:
    calling = draft.reading.calling
    labels = next((one.name for one in given if one.role == "labels"), None)
    if labels is None or calling.first or len(calling.inputs) != 1:
        return
    (tokens,) = samples(trial, 1)
    goals = trial.tokens(seed=31)
    fixed = {name: code for name, code in calling.fixed.items() if name != labels}
    rest = "".join(f", {name}={code}" for name, code in fixed.items())
    value = f"def both(model, tokens, labels):\n    return model(tokens, {labels}=labels{rest})"
    try:
        result = trial.run(value, tokens, goals)
        logits = trial.output(calling.function(), tokens, *real_of((tokens,)))
    except Refused:
        result, logits = None, torch.zeros(1, 1, 1)
    for pattern, tensor in parts(result):
        if tensor.numel() != 1:
            continue
        for code, wanted, how in losses(draft.reading.kind, logits, goals, labels, rest):
            if abs(float(tensor) - wanted) <= CLOSE * max(1.0, abs(wanted)):
                draft.fields["loss"] = "loss"
                draft.functions.append(finish(code, pattern))
                draft.reading.assumed.append(f"loss: {labels} are {how}, by the value of the loss")
                return
    reason = f"what {labels} gives is no cross-entropy of these outputs as they stand"
    draft.reading.open.append(("loss", reason, "loss=lambda model, tokens: ..."))


def losses(kind: str, logits: Tensor, goals: Tensor, labels: str, rest: str) -> list[tuple[str, float, str]]:
    """Readings of a loss: code with CALL around the call, the value it would have, and in words."""
    plain = float(F.cross_entropy(logits.flatten(0, 1), goals.flatten()))
    if kind == "Encoder":
        code = f"def loss(model, tokens, labels):\n    return CALL(model(tokens, {labels}=labels{rest}))"
        return [(code, plain, "one for each token")]
    shifted = float(F.cross_entropy(logits[:, :-1].flatten(0, 1), goals[:, 1:].flatten()))
    outside = f"model(tokens[:, :-1].contiguous(), {labels}=tokens[:, 1:].contiguous(){rest})"
    inside = f"model(tokens, {labels}=tokens{rest})"
    return [
        (f"def loss(model, tokens):\n    return CALL({outside})", plain, "already shifted"),
        (f"def loss(model, tokens):\n    return CALL({inside})", shifted, "shifted by the model"),
    ]


def finish(code: str, pattern: str) -> str:
    """Put the call where the pattern has its braces."""
    head, _, call = code.partition("CALL(")
    return head + pattern.format(call[:-1])


def add_optimizer(draft: Draft, trial: Trial) -> None:
    """The model's own configure_optimizers, with ordinary values."""
    method = getattr(trial.model, "configure_optimizers", None)
    if not callable(method):
        return
    taken = [one for one in inspect.signature(method).parameters.values() if one.default is inspect.Parameter.empty]
    fields = "weight_decay=0.1, learning_rate=1e-3, lr=1e-3, betas=(0.9, 0.95)"
    given = [f"{one.name}={VALUES.get(one.name, f'SimpleNamespace({fields})')}" for one in taken]
    code = f"def optimizer(model):\n    return model.configure_optimizers({', '.join(given)})"
    made: Any = safely(trial.run, code)
    if isinstance(made, torch.optim.Optimizer):
        draft.fields["optimizer"] = "optimizer"
        draft.functions.append(code)
        draft.reading.assumed.append("optimizer: the model's configure_optimizers, with ordinary values")
