"""The files that hold a tokenizer, by their names: Hugging Face's, GPT-2's pair of files, and tiktoken's.

`tokenizer.json` says everything. GPT-2's `vocab.json` and `merges.txt` (`encoder.json` and `vocab.bpe` in OpenAI's
release) imply GPT-2's pattern. A `.tiktoken` file lists only tokens with their ranks: the pattern and the special
tokens have to be given, and the merges are found again by encoding every token with those before it. What a
format cannot express exactly is refused, never approximated.
"""

import base64
import binascii
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead.disk import write_whole
from clearhead.errors import InputError
from clearhead.reading import parse_json, read_whole
from clearhead.tokenizer import characters_and_integers, delegated, huggingface, pieces
from clearhead.tokenizer.base import FORMS, Tokenizer
from clearhead.tokenizer.bytepair import BytePair, Merge, alphabet_symbols
from clearhead.tokenizer.huggingface import printable, unprintable
from clearhead.tokenizer.merge import Merges, merge
from clearhead.tokenizer.split import GPT2

LARGEST = 256 << 20  # bytes of a file; the largest vocabularies in use take an eighth of that
GPT2_NAMES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))


def load(
    path: str | os.PathLike[str], *, pattern: str | None = None, special: Mapping[str, int] | None = None
) -> Tokenizer:
    """The tokenizer in a file, or in the folder of a `tokenizer.json` or of GPT-2's two files.

    A `.tiktoken` file needs `pattern` ("gpt2", "cl100k", "o200k" or a regular expression) and takes `special`;
    the other formats know both themselves.
    """
    file = _find(Path(path))
    if file.suffix == ".tiktoken":
        if pattern is None:
            raise InputError(f"{file}: a .tiktoken file does not say its pattern; give gpt2, cl100k, o200k or your own")
        return read_tiktoken(file, pattern, special or {})
    if pattern is not None or special:
        raise InputError(f"{file}: its pattern and special tokens are known; they are given only for a .tiktoken file")
    for vocabulary, merges in GPT2_NAMES:
        if file.name in (vocabulary, merges):
            return read_gpt2(file.with_name(vocabulary), file.with_name(merges))
    with _described(file):
        return from_json(_read_json(file), str(file))


def from_json(content: dict[str, Any], where: str) -> Tokenizer:
    """The tokenizer of a parsed `tokenizer.json`, in whichever of our forms or in Hugging Face's."""
    if content.get("clearhead") == "marked":
        inner, marks = _get(content, "tokenizer", dict, where), _get(content, "marks", dict, where)
        if inner.get("clearhead") == "marked":
            raise InputError(f"{where}: marks around a tokenizer that has marks already")
        around = content.get("around")
        tokenizer = from_json(inner, where)
        tokenizer.marks = {str(role): _id(number, tokenizer, where) for role, number in marks.items()}
        forms = content.get("forms", [])
        if not isinstance(forms, list) or not set(forms) <= set(FORMS) or not reads_forms(tokenizer, forms):
            raise InputError(f"{where}: 'forms' is {forms!r:.80}; known are {', '.join(FORMS)}, for texts")
        tokenizer.forms = tuple(forms)
        if around is not None:
            before, after = around
            tokenizer.around = (
                tuple(_id(n, tokenizer, where) for n in before),
                tuple(_id(n, tokenizer, where) for n in after),
            )
        return tokenizer
    read = {
        "tokenizers": delegated.from_json,
        "pieces": pieces.from_json,
        None: huggingface.from_json,
    }.get(content.get("clearhead"), characters_and_integers.from_json)
    return read(content, where)


def reads_forms(tokenizer: Tokenizer, forms: Sequence[str]) -> bool:
    """Only what is learned here brings texts into a form; others have their own ways."""
    return not forms or isinstance(tokenizer, BytePair | characters_and_integers.Characters)


def _get(content: dict[str, Any], key: str, kind: type, where: str) -> Any:
    if not isinstance(content.get(key), kind):
        raise InputError(f"{where}: {key!r} is {content.get(key)!r:.80}, and a {kind.__name__} is wanted")
    return content[key]


def _id(number: Any, tokenizer: Tokenizer, where: str) -> int:
    if type(number) is not int or not 0 <= number < tokenizer.size:
        raise InputError(f"{where}: the id {number!r:.80} is not one from 0 to {tokenizer.size - 1}")
    return number


def save(tokenizer: Tokenizer, path: str | os.PathLike[str], merges_as_text: bool = False) -> None:
    """Write a tokenizer in the format that the name asks for.

    `x.tiktoken`; a folder, or one of the names of GPT-2's two files, for both of these; otherwise `tokenizer.json`,
    in which `merges_as_text` writes merges as `tokenizers` did before 0.20.
    """
    target = Path(path)
    if target.is_dir() or str(path).endswith(os.sep):
        target = target / "vocab.json"
    names = next((names for names in GPT2_NAMES if target.name in names), None)
    if target.suffix == ".tiktoken":
        write_whole(target, tiktoken_lines(_as_byte_pair(tokenizer, target)))
    elif names is not None:
        vocabulary, merges = gpt2_files(_as_byte_pair(tokenizer, target))
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target.with_name(names[1]), merges)
        write_whole(target.with_name(names[0]), vocabulary)
    elif merges_as_text:
        write_whole(target, huggingface.to_json(_as_byte_pair(tokenizer, target), merges_as_text))
    else:
        tokenizer.save(target)


def read_gpt2(vocabulary: Path, merges: Path) -> BytePair:
    """GPT-2's two files. What is in the vocabulary, but no byte and made by no merge, is a special token."""
    entries = _read_json(vocabulary)
    for text, number in entries.items():
        if type(number) is not int:
            raise InputError(f"{vocabulary}: the id of {text!r} is {number!r}, and a whole number is wanted")
    lines = _read(merges).decode("utf-8", "replace").split("\n")
    pairs: list[Merge] = []
    for number, line in enumerate(lines, 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2:
            raise InputError(f"{merges}, line {number}: {line!r} is not two tokens with a space between")
        where = f"{merges}, line {number}"
        pairs.append((unprintable(parts[0], where), unprintable(parts[1], where)))
    made = {printable(left + right) for left, right in pairs} | {printable(bytes([byte])) for byte in range(256)}
    special = {text: number for text, number in entries.items() if text not in made} if pairs else {}
    ordinary = {unprintable(text, str(vocabulary)): number for text, number in entries.items() if text not in special}
    try:
        return BytePair(ordinary, pairs, special, GPT2)
    except InputError as error:
        raise InputError(f"{vocabulary} and {merges.name}: {error}") from None


def gpt2_files(tokenizer: BytePair) -> tuple[bytes, bytes]:
    """The content of `vocab.json` and `merges.txt`."""
    if tokenizer.pattern != GPT2:
        raise InputError("GPT-2's files imply GPT-2's pattern; this tokenizer has another: write a tokenizer.json")
    if tokenizer.whole_words:
        raise InputError("GPT-2's files cannot say that whole words come before merges: write a tokenizer.json")
    made = {left + right for left, right in tokenizer.merges}
    for token in tokenizer.vocabulary:
        if len(token) > 1 and token not in made:
            raise InputError(f"in GPT-2's files the token {token!r}, which no merge makes, would be a special token")
    model = json.loads(huggingface.to_json(tokenizer))["model"]
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    return json.dumps(model["vocab"], ensure_ascii=False).encode(), ("#version: 0.2\n" + merges).encode()


def read_tiktoken(path: Path, pattern: str, special: Mapping[str, int]) -> BytePair:
    """Lines of a token in base64 and its rank, which is its id."""
    vocabulary: dict[bytes, int] = {}
    for number, line in enumerate(_read(path).splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            decoded = base64.b64decode(token, validate=True)
            if decoded in vocabulary:
                raise InputError(f"{path}, line {number}: the token {decoded!r} is there twice")
            vocabulary[decoded] = int(rank)
        except (ValueError, binascii.Error) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}, line {number}: {line[:80]!r} is not a token in base64 and a rank") from None
    try:
        return BytePair(vocabulary, _find_merges(vocabulary), dict(special), pattern)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _find_merges(vocabulary: dict[bytes, int]) -> list[Merge]:
    """The two tokens that each token is made of: what the tokens before it make of its bytes."""
    alphabet = alphabet_symbols(vocabulary)
    by_id = {rank: token for token, rank in vocabulary.items()}
    found: list[Merge] = []
    symbols = Merges([], [], {})
    for token in sorted((token for token in vocabulary if len(token) > 1), key=vocabulary.__getitem__):
        parts = merge("".join(map(alphabet.__getitem__, token)), symbols)
        if len(parts) != 2:
            raise InputError(
                f"the token {token!r} (rank {vocabulary[token]}) is not the merge of two tokens before it, "
                f"which make {len(parts)} of it; only byte-pair encodings can be read"
            )
        symbols.ranks[parts] = len(found)
        symbols.pairs.append(parts)
        symbols.made.append(chr(vocabulary[token]))
        found.append((by_id[ord(parts[0])], by_id[ord(parts[1])]))
    return found


def tiktoken_lines(tokenizer: BytePair) -> bytes:
    """The content of a `.tiktoken` file, if tiktoken would make the same ids of it.

    tiktoken looks for the whole word, then joins whatever two tokens spell a third, the lowest id first. This comes to
    the same if every token is made by one merge, in the order of the ids, and is what its own bytes are encoded
    to: then no other two tokens that spell it can ever stand side by side.
    """
    made: set[bytes] = set()
    highest = -1
    for left, right in tokenizer.merges:
        token, number = left + right, tokenizer.vocabulary[left + right]
        if token in made:
            raise InputError(f"a .tiktoken file cannot express that two merges make the token {token!r}")
        if number < highest:
            raise InputError(f"a .tiktoken file cannot express that id {number}, {token!r}, comes after id {highest}")
        made.add(token)
        highest = number
    for token, number in tokenizer.vocabulary.items():
        if (alone := tokenizer.encode_word(token)) != [number]:
            raise InputError(f"tiktoken would encode {token!r} as [{number}], while the merges make {alone} of it")
    by_rank = sorted(tokenizer.vocabulary.items(), key=lambda item: item[1])
    return b"".join(base64.b64encode(token) + b" %d\n" % number for token, number in by_rank)


def _as_byte_pair(tokenizer: Tokenizer, target: Path) -> BytePair:
    if tokenizer.forms:
        raise InputError(f"{target}: cannot say that texts are read as {', '.join(tokenizer.forms)}; write .json")
    if not isinstance(tokenizer, BytePair):
        raise InputError(f"{target}: only a byte-pair encoding can be written there; {type(tokenizer).__name__} cannot")
    return tokenizer


def _find(path: Path) -> Path:
    """The file that a folder stands for."""
    if not path.is_dir():
        return path
    names = ["tokenizer.json", *(vocabulary for vocabulary, _ in GPT2_NAMES)]
    for name in names:
        if (path / name).exists():
            return path / name
    raise InputError(f"{path} holds no tokenizer: none of {', '.join(names)} is there")


def _read(path: Path) -> bytes:
    return read_whole(path, LARGEST)


@contextmanager
def _described(path: Path) -> Iterator[None]:
    """What stands at a place where something else is wanted, and is met only when it is used."""
    try:
        yield
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a tokenizer that can be read: {type(error).__name__}: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    content = parse_json(_read(path), path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: an object is wanted, not a {type(content).__name__}")
    return content
