"""The row that `padding_idx` keeps from learning: only padding reads it, and it starts at zero.

PyTorch zeroes that row when an embedding is made and never gives it a gradient. An initialisation that runs over all
matrices fills it with noise that stays; and where a real token, or a position, reads it, that one never learns.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import ERROR, WARNING, Finding, NotArmed
from clearhead.doctor.probes import show
from clearhead.doctor.subject import Subject, outputs
from clearhead.doctor.watch import Watch


def tables(model: nn.Module) -> dict[str, nn.Embedding]:
    """The embeddings that have such a row."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    return {name: module for name, module in found.items() if module.padding_idx is not None}


def read_by_real_tokens(subject: Subject, model: nn.Module, table: nn.Embedding) -> Tensor | None:
    """The indices, all of real tokens, with which the row was read; None where it was not."""
    pad: Any = subject.spec.pad
    row = table.padding_idx
    assert row is not None
    inputs = subject.inputs(2, 11, seed=70)
    if pad is not None and row not in (pad if isinstance(pad, tuple) else (pad,)):
        # every token but the declared padding is real, the first ones too
        inputs = tuple(x.clone() for x in inputs)
        for x in inputs:
            x[:, 3] = row
    with Watch() as watch, torch.no_grad():
        outputs(subject.spec.forward(model, *inputs))
    for weight, indices, _ in watch.seen.lookups:
        if weight.data_ptr() == table.weight.data_ptr() and bool((indices == row).any()):
            return indices
    return None


def run(subject: Subject) -> list[Finding]:
    model = subject.raw()
    found = tables(model)
    if not found:
        raise NotArmed("no embedding has a padding_idx")
    findings = []
    pads = {table.padding_idx for table in found.values()}
    for name, table in found.items():
        row, mark = table.weight[table.padding_idx].detach(), table.padding_idx
        assert mark is not None
        in_range = mark < subject.vocab
        indices = read_by_real_tokens(subject, model, table) if in_range else None
        if indices is not None:
            message = (
                f"{name} has padding_idx={mark}, and real tokens read that row (indices "
                f"{indices.flatten()[:5].tolist()}, ...): it gets no gradient and never learns"
            )
            # two vocabularies may have two padding tokens, and the description has one
            unclear = isinstance(subject.spec, EncoderDecoder) and len(pads) > 1
            evidence = {"name": name, "padding_idx": mark}
            findings.append(Finding("padding_row.read", WARNING if unclear else ERROR, message, evidence))
        elif bool(row.any()):
            size = show(float(row.double().abs().max()))
            message = (
                f"row {mark} of {name}, its padding_idx, is not zero after building (up to {size}): an initialisation "
                "overwrote it, and looking it up gives no gradient that could change it"
            )
            findings.append(Finding("padding_row.filled", WARNING, message, {"name": name}))
    return findings[:2]
