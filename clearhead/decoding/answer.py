"""What a model makes of one text, as a person would say it: a translation, the next token, a class, a gap filled in."""

import math
from typing import Any

import torch
from torch import Tensor

from clearhead.decoding.load import LoadedModel
from clearhead.decoding.results import Prediction


def answer(loaded: LoadedModel, text: str) -> str:
    """The translation of a text, the token that follows it, or what the head of an encoder-only model says of it."""
    kind = loaded.model.config.kind
    if kind == "encoder-decoder":
        return loaded.translate(text)[0].text
    if kind == "decoder":
        return loaded.generate(text, max_tokens=1, temperature=0)[0].text or "(the end)"
    said = prediction(loaded, text, loaded.predict([text])[0])
    return " ".join(map(str, said)) if isinstance(said, list) else str(said)


def prediction(loaded: LoadedModel, text: str, made: Tensor | Prediction) -> Any:
    """The likeliest label, class or classes by what the head `made` of a text; for masked tokens, the text with its
    gaps filled; without classes, the vector itself."""
    if isinstance(made, Prediction):
        return made.label
    head = loaded.model.config.head
    if head.kind == "masked":
        made = made.index_fill(-1, torch.tensor(loaded.without_token, dtype=torch.long, device=made.device), -math.inf)
        gap, best = loaded.tokenizer.mask_id, made.argmax(-1).tolist()
        return loaded.tokenizer.decode(
            best[place] if token == gap else token for place, token in enumerate(loaded.tokens(text))
        )
    return made.argmax(-1).tolist() if head.classes else made.tolist()
