"""A text as an encoder-only model reads it: gaps to be guessed, the marks around it, and no more than fits."""

import re

from clearhead.tokenizer.base import MASK, Tokenizer


def encoder_tokens(tokenizer: Tokenizer, text: str, most: int) -> list[int]:
    """The ids of a text, at most so many; none if it has no tokens. A gap is written by the tokenizer's own name of it
    (BERT's is [MASK]), or where it has none by ours."""
    text = text[: 64 * most]  # the rest would be cut off as ids
    mask = tokenizer.mask_id
    own = [name for name, number in tokenizer.special.items() if number == mask] or [MASK]
    parts = [text] if mask is None else re.split("|".join(map(re.escape, own)), text)
    ids: list[int] = []
    for number, part in enumerate(parts):
        ids += [*([mask] if number and mask is not None else []), *tokenizer.encode_ordinary(part)]
    before, after = tokenizer.around or ((), ())
    return [*before, *ids[: most - len(before) - len(after)], *after] if ids else []
