"""Every attention of one pass, with the names of its rows and columns: what a picture of attention is made of.

A row is a query and a column a key. In the decoder the query stands at one token and predicts the next, so its rows are
named by the token being predicted, and its columns by the tokens it reads. Entropy says how spread out a head looks:
0 bits if it looks at one token, log₂ n if at n tokens evenly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.decoding.alignment import entropy
from clearhead.decoding.load import LoadedModel
from clearhead.errors import InputError
from clearhead.model import DecoderOnly, EncoderDecoder, EncoderOnly, Trace, trace
from clearhead.tokenizer.base import Tokenizer

ENCODER, MASKED, CROSS = "encoder self-attention", "decoder masked self-attention", "decoder cross-attention"
SIGNS = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}


class Mark(NamedTuple):
    """Cells of one head that a picture frames, with a line about them above the head."""

    head: int  # counted from 0, as in `weights`
    rows: range
    columns: range
    line: str


@dataclass(frozen=True)
class Panel:
    """One layer of one kind of attention."""

    kind: str
    layer: int  # counted from 1
    weights: Tensor  # (H, S, T)
    may_attend: Tensor  # (S, T); what is False was masked
    rows: list[str]
    columns: list[str]
    marks: tuple[Mark, ...] = ()

    @property
    def entropies(self) -> list[float]:
        """Of each head in bits, averaged over its rows."""
        return entropy(self.weights).mean(-1).tolist()


@torch.inference_mode()
def attention_panels(loaded: LoadedModel, text: str, target: str | None = None) -> list[Panel]:
    """Every layer of every attention while the model reads `text`, and writes `target` or its own translation."""
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        source, _ = loaded.source(text)
        if target is None:
            written = loaded.translate_ids([source])[0].tokens
        else:
            written = loaded.tokenizer.encode_ordinary(target)
        start, end = loaded.tokenizer.bos_id, loaded.tokenizer.eos_id
        assert start is not None
        assert end is not None
        with trace(model) as recorded:
            model.hidden(_row(loaded, source), _row(loaded, [start, *written]))
        read, predicted = names(loaded, [start, *written]), names(loaded, [*written, end])
        source_names = names(loaded, source, loaded.source_tokenizer)
        return [
            *_panels(recorded, "encoder", "self_attention", ENCODER, source_names, source_names),
            *_panels(recorded, "decoder", "self_attention", MASKED, predicted, read),
            *_panels(recorded, "decoder", "cross_attention", CROSS, predicted, source_names),
        ]
    if target is not None:
        raise InputError(f"a target is for models that translate; {loaded.name} is of the kind {model.config.kind!r}")
    if isinstance(model, EncoderOnly):
        ids = loaded.tokens(text)
        if not ids:
            raise InputError("the text has no tokens: nothing to look at")
        with trace(model) as recorded:
            model.hidden(_row(loaded, ids))
        return _panels(recorded, "encoder", "self_attention", ENCODER, names(loaded, ids), names(loaded, ids))
    assert isinstance(model, DecoderOnly)
    ids = loaded.prompt(text)
    with trace(model) as recorded:
        logits = model(_row(loaded, ids))
    following = names(loaded, [*ids[1:], int(logits[0, -1].argmax())])  # the last row's prediction is the model's own
    return _panels(recorded, "decoder", "self_attention", MASKED, following, names(loaded, ids))


def _row(loaded: LoadedModel, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=loaded.device)


def _panels(recorded: Trace, stack: str, part: str, kind: str, rows: list[str], columns: list[str]) -> list[Panel]:
    found, layer = [], 0
    while f"{stack}.layers.{layer}.{part}.weights" in recorded.tensors:
        place = f"{stack}.layers.{layer}.{part}"
        weights = recorded[f"{place}.weights"][0].float().cpu()
        seen = torch.ones(weights.shape[1:], dtype=torch.bool)
        if f"{place}.mask" in recorded.tensors:
            mask = recorded[f"{place}.mask"].cpu()
            seen = mask.view((1,) * (4 - mask.dim()) + mask.shape)[0, 0].expand_as(seen)
        found.append(Panel(kind, layer + 1, weights, seen, rows, columns))
        layer += 1
    return found


def names(loaded: LoadedModel, ids: Sequence[int], tokenizer: Tokenizer | None = None) -> list[str]:
    """Tokens as they can be read on an axis: white space has a sign, bytes that are no character are hexadecimal."""
    result = []
    for token in ids:
        raw = (tokenizer or loaded.tokenizer).token_bytes(token)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = "".join(f"\\x{byte:02x}" for byte in raw)
        result.append("".join(SIGNS.get(c, c if c.isprintable() else f"U+{ord(c):04X}") for c in text))
    return result
