"""Our tokenizers as a `tokenizer.json` of Hugging Face's `tokenizers`, with the marks that a model reads around a text.

Byte pairs are written as they are everywhere, and what was theirs goes back to them. Characters and integers become a
`WordLevel` model over words of one character, or over numbers; pieces with scores a BPE whose merges are in the order
of the scores. Special tokens are special only where the caller asks for that, as here: `tokenizer_config.json` says
`split_special_tokens`, and `tokenizers` itself has `encode_special_tokens`.
"""

import json
import warnings
from collections.abc import Sequence
from typing import Any

from clearhead.decoding.load import LoadedModel
from clearhead.errors import InputError
from clearhead.tokenizer.base import LOWER, UNK, Tokenizer
from clearhead.tokenizer.bytepair import BytePair
from clearhead.tokenizer.characters_and_integers import Characters, Integers
from clearhead.tokenizer.delegated import Delegated
from clearhead.tokenizer.huggingface import printable
from clearhead.tokenizer.pieces import Pieces

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
EVERY_CHARACTER = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
LEADING_ZEROS = {"type": "Replace", "pattern": {"Regex": r"(?<!\S)0+(?=\d+(?!\S))"}, "content": ""}
SPACE = "▁"  # SentencePiece's


def tokenizer_files(loaded: LoadedModel) -> dict[str, str]:
    """By name, the files with which `tokenizers` makes of a text what our model reads of it, and text of what it
    writes; the second is another one where source and target have a vocabulary each."""
    result = {"tokenizer.json": tokenizer_json(loaded.source_tokenizer, *marks(loaded))}
    if loaded.source_tokenizer is not loaded.tokenizer:
        result["target_tokenizer.json"] = tokenizer_json(loaded.tokenizer)
    return result


def tokenizer_json(tokenizer: Tokenizer, before: Sequence[int] = (), after: Sequence[int] = ()) -> str:
    content = described(tokenizer)
    if tokenizer.forms:
        steps = [{"type": "Lowercase" if form == LOWER else form} for form in tokenizer.forms]
        content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    content["post_processor"] = template(before, after, tokenizer) if before or after else None
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def marks(loaded: LoadedModel) -> tuple[Sequence[int], Sequence[int]]:
    """The ids before and after what a model reads: a source has its end, a document its beginning."""
    tokenizer, kind = loaded.source_tokenizer, loaded.model.config.kind
    if kind == "encoder-decoder":
        assert tokenizer.eos_id is not None
        return [], [tokenizer.eos_id]
    if tokenizer.around is not None:
        return tokenizer.around[0], tokenizer.around[1] if kind == "encoder" else ()
    return [] if kind == "encoder" or loaded.beginning is None else [loaded.beginning], []


def template(before: Sequence[int], after: Sequence[int], tokenizer: Tokenizer) -> dict[str, Any]:
    names = token_names(tokenizer, tokenizer.size)

    def around(*texts: str) -> list[dict[str, Any]]:
        inside = [{"Sequence": {"id": text, "type_id": 0}} for text in texts]
        special = [[{"SpecialToken": {"id": names[one], "type_id": 0}} for one in ids] for ids in (before, after)]
        return [*special[0], *inside, *special[1]]

    return {
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": around("A", "B"),
        "special_tokens": {
            names[number]: {"id": names[number], "ids": [number], "tokens": [names[number]]}
            for number in {*before, *after}
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
        cut = {"type": "WhitespaceSplit"}
        return word_level(tokenizer, vocabulary, normalizer=LEADING_ZEROS, pre_tokenizer=cut, decoder=None)
    if isinstance(tokenizer, Pieces):
        return by_scores(tokenizer)
    if isinstance(tokenizer, Delegated) and tokenizer.vocabulary is None:
        return dict(tokenizer.content)
    if not isinstance(tokenizer, BytePair):
        raise InputError("a tokenizer whose pieces are numbered in another file, as Marian's are, cannot be exported")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            content: dict[str, Any] = json.loads(tokenizer.to_json())
        except UserWarning as error:
            raise InputError(f"the tokenizer cannot be exported: {error}") from None
    return content


def word_level(tokenizer: Tokenizer, vocabulary: dict[str, int], **steps: Any) -> dict[str, Any]:
    # a word that is unknown becomes <unk>, and is refused where the vocabulary does not have that
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNK}
    return whole(tokenizer, model, **steps)


def by_scores(tokenizer: Pieces) -> dict[str, Any]:
    """SentencePiece's byte-pair encoding. It joins what makes the piece of the highest score: so the merges are all
    pairs that make a piece, those of the best piece first."""
    names = token_names(tokenizer, tokenizer.size)
    ordinary = {name: number for number, name in enumerate(names) if name not in tokenizer.special}
    best = sorted(ordinary, key=lambda name: (-tokenizer.scores[ordinary[name]], ordinary[name]))
    splits = ((name[:place], name[place:]) for name in best for place in range(1, len(name)))
    model = {
        "type": "BPE",
        "unk_token": UNK if UNK in tokenizer.special else None,
        "byte_fallback": True,
        "fuse_unk": False,
        "vocab": {name: number for number, name in enumerate(names)},
        "merges": [pair for pair in splits if pair[0] in ordinary and pair[1] in ordinary],
    }
    spaces = [{"type": "Prepend", "prepend": SPACE}, replace(" ", SPACE)]
    text = [replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    text.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return whole(
        tokenizer,
        model,
        normalizer={"type": "Sequence", "normalizers": spaces},
        pre_tokenizer=None,
        decoder={"type": "Sequence", "decoders": text},
    )


def replace(one: str, other: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": one}, "content": other}


def whole(tokenizer: Tokenizer, model: dict[str, Any], **steps: Any) -> dict[str, Any]:
    """A `tokenizer.json` of a model and of what comes before and after it."""
    if len(model["vocab"]) < tokenizer.size:
        raise InputError("the tokenizer cannot be exported: two of its tokens have the same name")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": name, **FLAGS} for name, number in tokenizer.special.items()],
        "normalizer": None,
        **steps,
        "model": model,
    }


def token_names(tokenizer: Tokenizer, size: int) -> list[str]:
    """A name for each row of an embedding, as `tokenizers` has them; rows without a token get names of their own."""
    names = [f"<row {number}>" for number in range(size)]
    if isinstance(tokenizer, BytePair):
        found = {**{printable(token): number for token, number in tokenizer.vocabulary.items()}, **tokenizer.special}
    elif isinstance(tokenizer, Pieces):
        try:
            found = {piece.decode().replace(" ", SPACE): number for number, piece in enumerate(tokenizer.pieces)}
        except UnicodeDecodeError as error:
            raise InputError(f"the tokenizer cannot be exported: a piece is no text, {error.object!r}") from None
    elif isinstance(tokenizer, Delegated):
        found = tokenizer.ids
    else:
        found = {tokenizer.token_bytes(number).decode(): number for number in range(tokenizer.size)}
    for name, number in found.items():
        names[number] = name
    return names
