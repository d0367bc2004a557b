"""The tokenizer of a folder in Hugging Face's layout, and what in it plays which role.

Where our own byte-pair encoding gives the same ids it is taken; everything else is handed to `tokenizers`.
"""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clearhead.errors import InputError
from clearhead.interop import sentencepiece
from clearhead.reading import SETTINGS, parse_json, read_whole
from clearhead.tokenizer import Tokenizer, huggingface
from clearhead.tokenizer.base import ROLES
from clearhead.tokenizer.delegated import Delegated, check_vocabulary
from clearhead.tokenizer.formats import LARGEST, read_gpt2

FILES = (
    "tokenizer.json, vocab.json and merges.txt, vocab.txt, tokenizer.model, or source.spm, target.spm and vocab.json"
)
Pair = tuple[Tokenizer, Tokenizer | None]


def read_tokenizers(folder: Path, settings: Mapping[str, Any]) -> Pair:
    """The tokenizer, and the source's own if it has one; `settings` are those of `config.json`."""
    own = _json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    named = _json(folder / "special_tokens_map.json") if (folder / "special_tokens_map.json").exists() else {}
    own = {**named, **own}
    there = {name for name in TABLE if all((folder / part).exists() for part in name)}
    found = next((read for name, read in TABLE.items() if name in there), None)
    if found is None:
        raise InputError(f"{folder} holds no tokenizer: none of {FILES}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a text is surrounded by is read here, and not passed over
        target, source = found(folder, own)
    for tokenizer in (target, source):
        if tokenizer is not None:
            tokenizer.marks = marks(tokenizer, settings, own)
            tokenizer.around = tokenizer.around or ((), ())
    return target, source


# ---- the files there may be, in the order in which they are looked for ---------------------------------------------


def _marian(folder: Path, own: Mapping[str, Any]) -> Pair:
    """Two models of SentencePiece, and the ids of their pieces in one file, or in one for each side."""
    vocabulary = _vocabulary(folder / "vocab.json")
    apart = folder / "target_vocab.json"
    target = sentencepiece.read(folder / "target.spm", _vocabulary(apart) if apart.exists() else vocabulary)
    return target, sentencepiece.read(folder / "source.spm", vocabulary)


def _hugging_face(folder: Path, own: Mapping[str, Any]) -> Pair:
    path = folder / "tokenizer.json"
    content = _json(path, LARGEST)
    try:
        tokenizer: Tokenizer = huggingface.from_json(content, str(path))
    except (InputError, AttributeError, IndexError, KeyError, TypeError, ValueError) as ours:
        if not isinstance(content.get("model"), dict):
            raise InputError(f"{path} is not a tokenizer.json: it has no model") from None
        try:
            tokenizer = Delegated(content, str(path))
        except InputError as theirs:
            raise InputError(f"{theirs} (our own byte-pair encoding cannot read it either: {ours})") from None
    tokenizer.around = around(content.get("post_processor"), path)
    return tokenizer, None


def _gpt2(folder: Path, own: Mapping[str, Any]) -> Pair:
    return read_gpt2(folder / "vocab.json", folder / "merges.txt"), None


def _word_piece(folder: Path, own: Mapping[str, Any]) -> Pair:
    """BERT's `vocab.txt`: a token a line, its number the id."""
    path = folder / "vocab.txt"
    lines = read_whole(path, LARGEST).decode("utf-8", "replace").removesuffix("\n").split("\n")
    vocabulary = {line.rstrip("\r"): number for number, line in enumerate(lines)}
    names = {role: _name(own.get(f"{role}_token")) or usual for role, usual in BERT.items()}
    missing = [name for name in names.values() if name not in vocabulary]
    if missing:
        raise InputError(f"{path} has no {missing[0]}: not the vocabulary of a BERT")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    lower = own.get("do_lower_case", True)
    content = {
        "added_tokens": [{"id": vocabulary[name], "content": name, **flags} for name in names.values()],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": own.get("tokenize_chinese_chars", True),
            "strip_accents": own.get("strip_accents"),
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": names["unk"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }
    tokenizer = Delegated(content, str(path))
    tokenizer.around = (vocabulary[names["cls"]],), (vocabulary[names["sep"]],)
    return tokenizer, None


def _sentence_piece(folder: Path, own: Mapping[str, Any]) -> Pair:
    tokenizer = sentencepiece.read(folder / "tokenizer.model")
    start, end = (tokenizer.special.get(ROLES[role]) for role in ("bos", "eos"))
    before = (start,) if own.get("add_bos_token", True) and start is not None else ()
    after = (end,) if own.get("add_eos_token", False) and end is not None else ()
    tokenizer.around = before, after
    return tokenizer, None


BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
TABLE = {
    ("source.spm", "target.spm", "vocab.json"): _marian,
    ("tokenizer.json",): _hugging_face,
    ("vocab.json", "merges.txt"): _gpt2,
    ("vocab.txt",): _word_piece,
    ("tokenizer.model",): _sentence_piece,
}


# ---- what plays which role -----------------------------------------------------------------------------------------


def marks(tokenizer: Tokenizer, settings: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, int]:
    """The ids of the roles: by name in the tokenizer's settings, or else by number in the model's. What an
    encoder-decoder begins with has a number of its own."""
    found: dict[str, int] = {}
    known = tokenizer.ids if isinstance(tokenizer, Delegated) else tokenizer.special
    for role in ROLES:
        number: Any = known.get(_name(own.get(f"{role}_token")) or "")
        given = settings.get(f"{role}_token_id")
        if role == "bos" and settings.get("is_encoder_decoder"):
            number, given = None, settings.get("decoder_start_token_id")
        given = given[0] if isinstance(given, list) and given else given
        number = given if number is None else number
        if type(number) is int and 0 <= number < tokenizer.size:
            found[role] = number
    return found


def around(processor: Any, path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a post-processor puts before and after a text."""
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    steps = processor.get("processors", processor) if isinstance(processor, Mapping) else processor
    many: list[Any] = steps if isinstance(steps, list) else [steps] if steps else []
    for step in many:
        kind = step.get("type") if isinstance(step, Mapping) else step
        if kind not in (*PLACED, "ByteLevel"):
            raise InputError(f"{path}: its post-processor {kind!r} cannot be followed")
        try:
            first, last = PLACED[kind](step) if kind in PLACED else ((), ())
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"{path}: its post-processor {kind!r} is damaged: {error!r}") from None
        before, after = (*first, *before), (*after, *last)
    if not all(type(number) is int for number in (*before, *after)):
        raise InputError(f"{path}: what its post-processor puts around a text are no ids: {before} and {after}")
    return before, after


def _template(step: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of "<s> $A </s>", the ids on the left and on the right of the text."""
    ids = [step["special_tokens"][one["SpecialToken"]["id"]]["ids"] if "SpecialToken" in one else None
           for one in step["single"]]  # fmt: skip
    place = ids.index(None)
    return tuple(n for part in ids[:place] for n in part or ()), tuple(
        n for part in ids[place + 1 :] for n in part or ()
    )


def _of_bert(step: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (step["cls"][1],), (step["sep"][1],)


PLACED: dict[Any, Callable[[Mapping[str, Any]], tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "TemplateProcessing": _template,
    "BertProcessing": _of_bert,
    "RobertaProcessing": _of_bert,
}


def _name(token: Any) -> str | None:
    """A token's text, written as it is or with flags beside it."""
    token = token.get("content") if isinstance(token, Mapping) else token
    return token if isinstance(token, str) else None


def _json(path: Path, most: int = SETTINGS) -> dict[str, Any]:
    content = parse_json(read_whole(path, most), path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: an object is wanted, not a {type(content).__name__}")
    return content


def _vocabulary(path: Path) -> dict[str, int]:
    content = _json(path, LARGEST)
    check_vocabulary(content, str(path))
    return content
