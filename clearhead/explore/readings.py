"""One text and the answer to it, as the three kinds of model read them in one pass: what views and worth are made of.

An encoder-decoder reads the source, and the answer shifted right; a language model reads prompt and continuation; an
encoder-only model reads the text, and its answer is what its head says: the tokens behind the gaps, labels, a class.
Each token of the answer stands in one row of the output, the row that predicts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clearhead.data.masked import MASK
from clearhead.decoding.load import LoadedModel
from clearhead.errors import InputError
from clearhead.model import DecoderOnly, EncoderDecoder, EncoderOnly, Trace, trace
from clearhead.model.trace import Edit

MOST_ANSWER = 512  # tokens of an answer that are written or read


@dataclass(frozen=True)
class Reading:
    """What goes into a pass, and what is expected of it."""

    source: tuple[int, ...] = ()  # what the encoder reads
    prompt: tuple[int, ...] = ()  # what the decoder reads before the answer: the start token, or the prompt
    answer: tuple[int, ...] = ()  # the tokens (or labels) of the answer, the end token last if it ended
    cut: bool = False  # whether the text was longer than the model reads
    places: tuple[int, ...] | None = None  # encoder-only: the rows that answer

    @property
    def read(self) -> tuple[int, ...]:
        """What the decoder reads: the last token of the answer is predicted and never read."""
        return (*self.prompt, *self.answer[:-1]) if self.prompt else ()

    @property
    def rows(self) -> tuple[int, ...]:
        """The row of the output that predicts each token of the answer."""
        if self.places is not None:
            return self.places
        return tuple(range(len(self.prompt) - 1, len(self.prompt) - 1 + len(self.answer)))


def read_text(loaded: LoadedModel, text: str) -> Reading:
    """A text as the model reads it, without an answer yet."""
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        source, cut = loaded.source(text)
        start = loaded.tokenizer.bos_id
        if start is None:
            raise InputError("the tokenizer has no <s>, with which every translation begins")
        return Reading(tuple(source), (start,), cut=cut)
    if isinstance(model, DecoderOnly):
        ids, most = loaded.prompt(text), (model.config.positions.max_length or 1 << 30) - 1
        if len(ids) > most:
            raise InputError(f"the prompt has {len(ids)} tokens; this model's learned positions leave room for {most}")
        return Reading(prompt=tuple(ids))
    ids = loaded.tokens(text)
    if not ids:
        raise InputError("the text has no tokens: nothing to look at")
    head, gap = model.config.head, loaded.tokenizer.special.get(MASK)
    places: tuple[int, ...] = tuple(range(len(ids)))
    if head.kind == "pooled":
        places = (0,)
    elif head.kind == "masked" and gap in ids:
        places = tuple(place for place, token in enumerate(ids) if token == gap)
    return Reading(tuple(ids), places=() if no_answer(loaded) else places)


def no_answer(loaded: LoadedModel) -> bool:
    """Whether the head gives vectors only, which are neither right nor wrong."""
    head = loaded.model.config.head
    return head.kind == "none" or (head.kind == "pooled" and not head.classes)


def given_answer(loaded: LoadedModel, reading: Reading, target: str) -> Reading:
    """The reading with an answer given as text."""
    if reading.places is not None:
        raise InputError(f"a target is for models that write; {loaded.name} is of the kind 'encoder'")
    if isinstance(loaded.model, EncoderDecoder):
        ids = loaded.target(target)[1:]
    else:
        ids = loaded.tokenizer.encode_ordinary(target)
    if not ids:
        raise InputError("the target has no tokens: nothing to score")
    return with_answer(loaded, reading, ids)


def with_answer(loaded: LoadedModel, reading: Reading, ids: Sequence[int]) -> Reading:
    """The reading with an answer given as ids, refused where it does not fit the model."""
    config = loaded.model.config
    known = config.head.classes or config.vocab_size if config.kind == "encoder" else config.vocab_size
    wrong = [one for one in ids if not 0 <= one < known]
    if wrong:
        raise InputError(f"the answer holds the id {wrong[0]}; ids go from 0 to {known - 1}")
    if reading.places is not None and len(ids) != len(reading.places):
        raise InputError(f"the answer has {len(ids)} ids; this text asks for {len(reading.places)}")
    answered = replace(reading, answer=tuple(ids))
    most = config.positions.max_length
    if len(ids) > MOST_ANSWER or (most is not None and len(answered.read) > most):
        raise InputError(f"the answer has {len(ids)} tokens; there is room for {min(MOST_ANSWER, most or MOST_ANSWER)}")
    return answered


def outputs(loaded: LoadedModel, reading: Reading, batch: int = 1) -> Tensor:
    """The logits (batch, rows, V or classes) of every row that answers, the same text in every row of the batch."""
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        made = model(_rows(loaded, reading.source, batch), _rows(loaded, reading.read, batch))
    elif isinstance(model, DecoderOnly):
        made = model(_rows(loaded, reading.read, batch))
    else:
        assert isinstance(model, EncoderOnly)
        made = model(_rows(loaded, reading.source, batch))
        made = made[:, None] if made.dim() == 2 else made
    return made[:, list(reading.rows)].float()


@torch.inference_mode()
def traced(loaded: LoadedModel, reading: Reading, edit: Edit | None = None) -> tuple[Tensor, Trace]:
    """One pass, edited on the way: log-probabilities (rows, V) of the rows that answer, and every tensor."""
    with trace(loaded.model, edit=edit) as taken:
        logits = outputs(loaded, reading)[0]
    return logits.log_softmax(-1), taken


def _rows(loaded: LoadedModel, ids: Sequence[int], batch: int) -> Tensor:
    return torch.tensor([list(ids)] * batch, device=loaded.device)
