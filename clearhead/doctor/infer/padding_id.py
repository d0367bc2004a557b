"""The id of the padding token, and whether the model finds padding by it.

The id is told by the constructor or by an embedding's `padding_idx`. Whether the model hides those tokens by itself
is tried where it shows (both directions visible, or a source); for a causal model, where padding on the right never
shows, the constructor's word is taken.
"""

import torch
from torch import nn

from clearhead.doctor.infer.calling import Calling, real_of, samples
from clearhead.doctor.infer.reading import Reading, safely
from clearhead.doctor.infer.trial import VISIBLE, Trial

CANDIDATES = (0, 1, 2, 3)


def known(model: nn.Module, padding: dict[str, int]) -> tuple[int | None, str]:
    """The padding id and who says so."""
    for name, value in padding.items():
        return value, f"the argument {name}"
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.padding_idx, f"{name}.padding_idx"
    return None, ""


def hidden(trial: Trial, calling: Calling, which: int, token: int) -> bool:
    """Are tokens of this id, added at the end of an input, invisible to the outputs for the others?"""
    values = list(samples(trial, len(calling.inputs)))
    before = trial.output(calling.function(), *values, *real_of(tuple(values)))
    values[which] = torch.cat([values[which], torch.full((values[which].size(0), 3), token)], dim=1)
    after = trial.output(calling.function(), *values, *real_of(tuple(values)))[:, : before.size(1)]
    return float((before - after).abs().max()) <= VISIBLE * float(before.std())


def find(trial: Trial, reading: Reading, padding: dict[str, int]) -> int | None:
    """Find the id, and let the description hide padding by it where the model does."""
    calling = reading.calling
    pad, who = known(trial.model, padding)
    source_shows = reading.kind in ("Encoder", "EncoderDecoder")
    if pad is None and source_shows and not reading.padding and not reading.needs_real:
        control = safely(hidden, trial, calling, 0, 9)
        found = [one for one in CANDIDATES if safely(hidden, trial, calling, 0, one)]
        if len(found) == 1 and not control:
            pad, who = found[0], "trying: the model hides it"
    if pad is None:
        return None
    reading.assumed.append(f"pad={pad}: {who}")
    if reading.padding or reading.needs_real:
        return pad
    trusted = bool(padding) and not reading.padding
    if source_shows and not trusted:
        trusted = bool(safely(hidden, trial, calling, 0, pad))
    if trusted and source_shows:
        for variable, real in zip(calling.variables, calling.reals, strict=True):
            reading.padding[real] = {"": f"{variable} = {variable}.masked_fill(~{real}, {pad})"}
        reading.assumed.append("padding is found by its id: it is put where the doctor wants padding")
    return pad
