"""Byte-pair encoding made visible: the merges of a text as they happen, and what a vocabulary is like."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from clearhead.tokenizer.base import Tokenizer
from clearhead.tokenizer.bytepair import BytePair

RARE = 10  # a token that occurs less often than this in a text teaches a model little

_SIGNS = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


def show(token: bytes) -> str:
    """A token as people can read it: white space as signs, bytes that are no whole character as <E2>."""
    try:
        text = token.decode().translate(_SIGNS)
    except UnicodeDecodeError:
        return "".join(f"<{byte:02X}>" if byte > 0x7F else show(bytes([byte])) for byte in token)
    return "".join(character if character.isprintable() else f"<{ord(character):02X}>" for character in text)


def explain(tokenizer: BytePair, text: str) -> Iterator[str]:
    """Lines that show each word of a text: its bytes, every merge with its rank, and the ids in the end."""
    for word in tokenizer.split(text):
        pieces, steps = tokenizer.explain(word)
        width = max([len(str(rank)) for rank, _, _ in steps], default=0)
        yield f"{show(word.encode('utf-8', 'surrogateescape'))}   (bytes: {len(pieces)}, merges: {len(steps)})"
        yield f"  {'rank':>{width + 5}}   {' '.join(map(show, pieces))}"
        for rank, place, after in steps:
            shown = [f"[{show(piece)}]" if number == place else show(piece) for number, piece in enumerate(after)]
            yield f"  {rank:>{width + 5}}   {' '.join(shown)}"
        yield f"  {'ids':>{width + 5}}   {' '.join(map(str, tokenizer.encode_ordinary(word)))}"
        yield ""


@dataclass
class Use:
    """How a vocabulary fares on a text."""

    bytes: int = 0
    tokens: int = 0
    bytes_per_token: float = 0.0
    unused: float = 0.0  # share of the vocabulary that never occurs
    rare: float = 0.0  # share that occurs fewer than RARE times, the unused among them


def use(tokenizer: Tokenizer, texts: Iterable[str]) -> Use:
    """Encode the texts and see how much each token covers, and how many tokens are hardly needed."""
    found = Use()
    times: Counter[int] = Counter()
    for text in texts:
        ids = tokenizer.encode_ordinary(text)
        found.bytes += len(text.encode("utf-8", "surrogateescape"))
        found.tokens += len(ids)
        times.update(ids)
    ordinary = tokenizer.size - len(tokenizer.special)
    found.bytes_per_token = found.bytes / max(1, found.tokens)
    found.unused = 1 - len(times) / ordinary
    found.rare = 1 - sum(count >= RARE for count in times.values()) / ordinary
    return found
