"""Our tokenizers as a `tokenizer.json` of Hugging Face's `tokenizers`, with the marks that a model reads around a text.

Byte pairs are written as they are everywhere. Characters and integers become a `WordLevel` model over words of one
character, or over numbers. In all of them special tokens are special only where the caller asks for that, as here:
`tokenizer_config.json` says `split_special_tokens`, and `tokenizers` itself has `encode_special_tokens`.
"""

import json
import warnings
from typing import Any

from clearhead.decoding.load import LoadedModel
from clearhead.errors import InputError
from clearhead.tokenizer.base import EOS, UNK, Tokenizer
from clearhead.tokenizer.bytepair import BytePair
from clearhead.tokenizer.characters_and_integers import Characters, Integers
from clearhead.tokenizer.huggingface import printable

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
EVERY_CHARACTER = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
LEADING_ZEROS = {"type": "Replace", "pattern": {"Regex": r"(?<!\S)0+(?=\d+(?!\S))"}, "content": ""}


def tokenizer_json(loaded: LoadedModel) -> str:
    """The file with which `tokenizers` makes of a text what our model reads of it."""
    content = described(loaded.tokenizer)
    before, after = marks(loaded)
    if before or after:
        content["post_processor"] = template(before, after, loaded.tokenizer)
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def marks(loaded: LoadedModel) -> tuple[list[str], list[str]]:
    """The special tokens before and after what a model reads: a source has its end, a document its beginning."""
    names = {number: name for name, number in loaded.tokenizer.special.items()}
    kind = loaded.model.config.kind
    if kind == "encoder-decoder":
        return [], [EOS]
    begins = loaded.beginning if kind == "decoder" else None
    return ([] if begins is None else [names[begins]]), []


def template(before: list[str], after: list[str], tokenizer: Tokenizer) -> dict[str, Any]:
    def around(*texts: str) -> list[dict[str, Any]]:
        inside = [{"Sequence": {"id": text, "type_id": 0}} for text in texts]
        special = [[{"SpecialToken": {"id": name, "type_id": 0}} for name in names] for names in (before, after)]
        return [*special[0], *inside, *special[1]]

    return {
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": around("A", "B"),
        "special_tokens": {
            name: {"id": name, "ids": [tokenizer.special[name]], "tokens": [name]} for name in {*before, *after}
        },
    }


def described(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of a `tokenizer.json` that gives the same ids, or a refusal."""
    if isinstance(tokenizer, Characters):
        vocabulary = {name: number for number, name in enumerate([*tokenizer.special, *tokenizer.characters])}
        return word_level(tokenizer, vocabulary, pre_tokenizer=EVERY_CHARACTER, decoder={"type": "Fuse"})
    if isinstance(tokenizer, Integers):
        first = len(tokenizer.special)
        vocabulary = {**tokenizer.special, **{str(number): first + number for number in range(tokenizer.count)}}
        pieces = {"type": "WhitespaceSplit"}
        return word_level(tokenizer, vocabulary, normalizer=LEADING_ZEROS, pre_tokenizer=pieces, decoder=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            content: dict[str, Any] = json.loads(tokenizer.to_json())
        except UserWarning as error:
            raise InputError(f"the tokenizer cannot be exported: {error}") from None
    if "model" not in content:
        raise InputError(f"a tokenizer of the kind {type(tokenizer).__name__} cannot be exported")
    return content


def word_level(tokenizer: Tokenizer, vocabulary: dict[str, int], **steps: Any) -> dict[str, Any]:
    if len(vocabulary) < tokenizer.size:
        raise InputError("the tokenizer cannot be exported: a special token has the name of an ordinary one")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": name, **FLAGS} for name, number in tokenizer.special.items()],
        "normalizer": None,
        "post_processor": None,
        **steps,
        # a word that is unknown becomes this, and is refused where the vocabulary does not have it
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNK},
    }


def token_names(tokenizer: Tokenizer, size: int) -> list[str]:
    """A name for each row of an embedding, as `tokenizers` has them; rows without a token get names of their own."""
    names = [f"<row {number}>" for number in range(size)]
    if isinstance(tokenizer, BytePair):
        found = {**{printable(token): number for token, number in tokenizer.vocabulary.items()}, **tokenizer.special}
    elif isinstance(tokenizer, Characters | Integers):
        found = {tokenizer.token_bytes(number).decode(): number for number in range(tokenizer.size)}
    else:
        found = described(tokenizer)["model"]["vocab"]
    for name, number in found.items():
        names[number] = name
    return names
