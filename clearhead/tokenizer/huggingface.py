"""`tokenizer.json`, the file of Hugging Face's `tokenizers`, read and written for byte-level BPE.

Its vocabulary is JSON text, so bytes are written as printable characters: those that print stand for themselves,
the others for the characters from U+0100 on, in order. Whatever in a file would change the ids and cannot be
done here (a normalizer, a prefix space, added tokens with stripping…) is refused by name, never passed over.
"""

import json
import warnings
from itertools import product
from typing import Any

from clearhead.errors import InputError
from clearhead.tokenizer.bytepair import ALPHABET, PRINTABLE, BytePair, Merge
from clearhead.tokenizer.split import GPT2, is_portable

KEYS = (
    "version",
    "truncation",
    "padding",
    "added_tokens",
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "model",
)
OURS = "clearhead"  # the engine that a pattern was written for, where another may cut differently
_CHARACTERS = "".join(map(chr, [*PRINTABLE, *range(256, 256 + 256 - len(PRINTABLE))]))
_TO_TEXT = dict(zip(ALPHABET, _CHARACTERS, strict=True))
_TO_BYTE = {character: byte for byte, character in _TO_TEXT.items()}


def printable(token: bytes) -> str:
    """Bytes as the characters that stand for them in GPT-2's and Hugging Face's files."""
    return "".join(map(_TO_TEXT.__getitem__, token))


def unprintable(text: str, where: str) -> bytes:
    """The bytes that such characters stand for."""
    try:
        return bytes(map(_TO_BYTE.__getitem__, text))
    except KeyError as error:
        raise InputError(f"{where}: the token {text!r} has the character {error}, which stands for no byte") from None


def to_json(tokenizer: BytePair, merges_as_text: bool = False) -> str:
    """The text of `tokenizer.json`; `merges_as_text` writes "a b" as tokenizers before 0.20 did, not ["a", "b"]."""
    ordinary = {printable(token): number for token, number in tokenizer.vocabulary.items()}
    clash = next((name for name in tokenizer.special if name in ordinary), None)
    if clash is not None:
        raise InputError(f"tokenizer.json cannot tell the special token {clash!r} from the ordinary token of that name")
    vocabulary = dict(sorted({**ordinary, **tokenizer.special}.items(), key=lambda item: item[1]))
    merges = [(printable(left), printable(right)) for left, right in tokenizer.merges]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    portable = is_portable(tokenizer.pattern)
    if not portable:
        warnings.warn(f"tokenizers may cut differently by the pattern {tokenizer.pattern!r}", stacklevel=3)
    if tokenizer.pattern == GPT2:
        pre_tokenizer: dict[str, Any] = byte_level
    else:
        split = {"type": "Split", "pattern": {"Regex": tokenizer.pattern}, "behavior": "Isolated", "invert": False}
        if not portable:
            split["engine"] = OURS
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": name, **flags}
            for name, number in sorted(tokenizer.special.items(), key=lambda item: item[1])
        ],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": tokenizer.whole_words,
            "vocab": vocabulary,
            "merges": [" ".join(pair) for pair in merges] if merges_as_text else merges,
        },
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def from_json(content: dict[str, Any], where: str) -> BytePair:
    """The tokenizer that a parsed `tokenizer.json` describes; `where` names the file in messages."""
    model = _get(content, "model", dict, where)
    if model.get("type", "BPE") != "BPE":
        raise InputError(f"{where}: model.type is {model['type']!r}; only 'BPE' can be read")
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "fuse_unk", "dropout"):
        if model.get(key):
            raise InputError(f"{where}: model.{key} is {model[key]!r}; a byte-level BPE has none")
    if content.get("normalizer") is not None:
        raise InputError(f"{where}: it has a normalizer, {content['normalizer']}; texts are taken as they are")
    for key in content:
        if key not in KEYS:
            raise InputError(f"{where}: the key {key!r} is not one of {', '.join(KEYS)}")
    for key in ("truncation", "padding"):
        if content.get(key) is not None:
            raise InputError(f"{where}: {key} is {content[key]}; texts are taken as long as they are")
    _check_decoder(content.get("decoder"), where)
    if _adds_tokens(content.get("post_processor")):
        warnings.warn(f"{where}: its post-processor adds special tokens around a text; encode does not", stacklevel=3)
    entries = _get(model, "vocab", dict, where)
    special = _read_special(content.get("added_tokens") or [], entries, where)
    vocabulary = {unprintable(text, where): number for text, number in entries.items() if text not in special}
    merges = [_read_merge(entry, rank, where) for rank, entry in enumerate(_get(model, "merges", list, where))]
    try:
        return BytePair(
            vocabulary,
            merges,
            special,
            _read_pattern(content.get("pre_tokenizer"), where),
            whole_words=bool(model.get("ignore_merges")),
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _get(mapping: dict[str, Any], key: str, kind: type, where: str) -> Any:
    value = mapping.get(key)
    if not isinstance(value, kind):
        raise InputError(f"{where}: {key!r} is {type(value).__name__}, and a {kind.__name__} is wanted")
    return value


def _read_special(added: list[dict[str, Any]], vocabulary: dict[str, int], where: str) -> dict[str, int]:
    """Added tokens by name. tokenizers goes by the vocabulary, or counts on from its end, whatever id is written."""
    special: dict[str, int] = {}
    for token in added:
        for flag in ("single_word", "lstrip", "rstrip"):
            if token.get(flag):
                raise InputError(f"{where}: the added token {token['content']!r} has {flag}, which cannot be done here")
        if not token.get("special"):
            raise InputError(f"{where}: the added token {token['content']!r} is not special; only special ones can be")
        name, following = token["content"], max(len(vocabulary), 1 + max(special.values(), default=-1))
        wanted = vocabulary.get(name, special.get(name, following))
        if token["id"] != wanted:
            raise InputError(
                f"{where}: the added token {name!r} has the id {token['id']}, but tokenizers gives it {wanted}"
            )
        special[name] = wanted
    _check_overlaps(added, where)
    return special


def _check_overlaps(added: list[dict[str, Any]], where: str) -> None:
    """They look for the tokens that are not `normalized` first; where such a token can overlap one of the others, that
    is another result than looking for all at once."""
    early = [token["content"] for token in added if not token.get("normalized")]
    late = [token["content"] for token in added if token.get("normalized")]
    for one, other in product(early, late):
        longest = min(len(one), len(other))
        ends = any(one[-n:] == other[:n] or other[-n:] == one[:n] for n in range(1, longest + 1))
        if ends or one in other or other in one:
            raise InputError(
                f"{where}: the added tokens {one!r} and {other!r} overlap, and only the second is normalized; "
                "in which order they are looked for cannot be followed here"
            )


def _check_decoder(decoder: dict[str, Any] | None, where: str) -> None:
    """Only ByteLevel turns the characters of the file back into the bytes they stand for; without it, text changes."""
    steps = (decoder or {}).get("decoders", [decoder])
    kinds = [step and step.get("type") for step in steps]
    if kinds != ["ByteLevel"]:
        raise InputError(f"{where}: decoder is {kinds}; only ['ByteLevel'] can be read")


def _read_merge(entry: str | list[str], rank: int, where: str) -> Merge:
    """Both ways of writing: "a b", and since tokenizers 0.20 ["a", "b"]."""
    pair = entry.split(" ") if isinstance(entry, str) else entry
    if len(pair) != 2:
        raise InputError(f"{where}: merge {rank} is {entry!r}, and two tokens are wanted")
    return unprintable(pair[0], where), unprintable(pair[1], where)


def _read_pattern(pre_tokenizer: dict[str, Any] | None, where: str) -> str:
    """ByteLevel alone has GPT-2's pattern built in; other patterns stand in a Split before it."""
    steps = (pre_tokenizer or {}).get("pretokenizers", [pre_tokenizer])
    kinds = [step and step.get("type") for step in steps]
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"]):
        raise InputError(f"{where}: pre_tokenizer is {kinds}; ByteLevel, or Split and ByteLevel, can be read")
    if steps[-1].get("add_prefix_space"):
        raise InputError(f"{where}: pre_tokenizer.add_prefix_space is true; texts are taken as they are")
    if kinds == ["ByteLevel"]:
        if not steps[0].get("use_regex", True):
            raise InputError(f"{where}: ByteLevel has use_regex false and no Split before it: there is no pattern")
        return GPT2
    split = steps[0]
    if steps[1].get("use_regex", True) or split.get("behavior") != "Isolated" or split.get("invert"):
        raise InputError(f"{where}: only a Split that isolates, before a ByteLevel with use_regex false, can be read")
    pattern: str | None = split.get("pattern", {}).get("Regex")
    if pattern is None:
        raise InputError(f"{where}: the pattern of Split is {split.get('pattern')!r}, and a Regex is wanted")
    if split.get("engine") != OURS and not is_portable(pattern):
        raise InputError(f"{where}: the pattern {pattern!r} uses what means something else here than in tokenizers")
    return pattern


def _adds_tokens(processor: dict[str, Any] | None) -> bool:
    steps = (processor or {}).get("processors", [processor])
    return any(step and step.get("type") != "ByteLevel" for step in steps)
