"""Getting the tokenizer that a recipe asks for: learned from the training text, or read from a file.

A large corpus is not needed whole to learn its words: of more than LEARNED_FROM bytes, evenly spaced pieces of it are
read that have about as many. What was learned is kept in the cache, under a sum of all it depends on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from clearhead import tokenizer as tokenizers
from clearhead.data.files import expand
from clearhead.data.prepare import Corpus, bar
from clearhead.data.settings import TokenizerSettings
from clearhead.data.store import cache_folder, digest, sum_of
from clearhead.disk import make_folder, remove, write_whole
from clearhead.errors import InputError
from clearhead.tokenizer import BytePair, Tokenizer

LEARNED_FROM = 64 << 20  # bytes of text
RUN = 1 << 16  # characters that are taken or left together


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
    former = tokenizers.Characters("")  # which has no word of its own to say, only forms
    former.forms = asked.forms
    formed = map(former.formed, texts) if asked.forms else texts
    found: Tokenizer
    if kind == "characters":
        found = tokenizers.Characters.train(formed, special)
    else:
        found = tokenizers.train(formed, asked.vocab_size, special=special, pattern=asked.pattern, at_most=True)
    found.forms = asked.forms
    return found


def learned(
    asked: TokenizerSettings,
    corpus: Corpus,
    side: int | None = None,  # of pairs, the texts of one side only
    special: Sequence[str] = tokenizers.SPECIAL,
) -> Tokenizer:
    """The tokenizer for a corpus: from the cache, if it was learned before."""
    if asked.path is not None or asked.kind == "integers":
        return get_tokenizer(asked, (), "bpe", special)
    key = sum_of([corpus.describe(), asdict(asked), side, list(special), LEARNED_FROM])
    path = cache_folder() / "tokenizers" / f"{key}.json"
    mark = path.with_suffix(".sha256")
    if whole(path, mark):
        return tokenizers.load(path)
    every = -(-corpus.size() // LEARNED_FROM)
    with bar(f"learning the words of {Path(corpus.names[0].partition(' and ')[0]).name}", corpus.size()) as advance:
        rows = sampled(corpus.texts(), every, advance)
        texts = (text for row in rows for text in (row if side is None else row[side : side + 1]))
        found = get_tokenizer(asked, texts, "bpe", special)
    make_folder(path.parent)
    for place in (path, mark):
        if place.is_dir():  # into which it would be saved
            remove(place)
    found.save(path)
    write_whole(mark, digest(path))
    return found


def whole(path: Path, mark: Path) -> bool:
    """Whether what was kept is what was written."""
    try:
        return mark.read_text() == digest(path)
    except (OSError, ValueError):
        return False


def fewer_tokens(found: Tokenizer, asked: TokenizerSettings) -> bool:
    """Whether the text had not as many pairs as were asked for."""
    return isinstance(found, BytePair) and asked.path is None and found.size < asked.vocab_size


def sampled(
    rows: Iterable[tuple[str, ...]], every: int, advance: Callable[[int], None] = lambda size: None
) -> Iterator[tuple[str, ...]]:
    """One run of rows in so many; `advance` is told the size of each, taken or not."""
    run = size = 0
    for row in rows:
        if run % max(1, every) == 0:
            yield row
        size += sum(map(len, row))
        if size >= RUN:
            advance(size)
            run, size = run + 1, 0
