"""Getting the tokenizer that a recipe asks for: learned from the training text, or read from a file."""

from collections.abc import Iterable, Sequence

from clearhead import tokenizer as tokenizers
from clearhead.data.files import expand
from clearhead.data.settings import TokenizerSettings
from clearhead.errors import InputError
from clearhead.tokenizer import Tokenizer


def get_tokenizer(
    asked: TokenizerSettings,
    texts: Iterable[str],
    usual: str,  # the kind that suits the data, where none is asked for
    special: Sequence[str] = tokenizers.SPECIAL,
) -> Tokenizer:
    """The tokenizer that is asked for; `texts` are only read to learn one."""
    if asked.path is not None:
        if asked.kind is not None:
            raise InputError(
                f"tokenizer.path = {asked.path!r} names a tokenizer that exists, tokenizer.kind = {asked.kind!r} says "
                "which to learn: give one of them"
            )
        return tokenizers.load(expand(asked.path))
    kind = asked.kind or usual
    if kind == "integers":
        raise InputError("tokenizer.kind = 'integers' is for the tasks on lists: copy, reverse, sort and count")
    if kind == "characters":
        return tokenizers.Characters.train(texts, special)
    return tokenizers.train(texts, asked.vocab_size, special=special, pattern=asked.pattern)
