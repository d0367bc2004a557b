"""Cutting text into words before any merging, so that no token spans two of them.

GPT-2 (Radford et al., 2019, section 2.2) keeps merges from crossing the borders between letters, digits,
punctuation and white space, because a learned "dog!" and "dog?" would waste the vocabulary. A pattern describes one
word; a text is the sequence of its matches. The patterns use Unicode classes (`\\p{L}`), which Python's `re` lacks,
but `re` is about three times faster than the `regex` module: so the classes are written out as character ranges
(of a fixed version of Unicode, see `unicode.py`) for `re`. Only `regex` can be told to give up, though, and a pattern
like `(a+)+b` takes longer than anyone lives: so `re` runs the patterns that are known here, and `regex` all others.
"""

import re
from functools import cache
from itertools import pairwise

import regex

from clearhead.errors import InputError
from clearhead.tokenizer.unicode import CLASSES, Ranges, complement, ranges

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Differs from GPT-2's in that digits come in threes, one sign may lead a word, and line ends stay with what they end.
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Also cuts where small letters end and capitals begin ("camelCase"), and keeps contractions with their word.
_LARGE, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TAIL = r"(?:'(?i:[sdmt]|ll|ve|re))?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_LARGE}*{_SMALL}+{_TAIL}|[^\r\n\p{{L}}\p{{N}}]?{_LARGE}+{_SMALL}*{_TAIL}|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PATTERNS = {"gpt2": GPT2, "cl100k": CL100K, "o200k": O200K}

# What other public tokenizers have in their files (Llama 3, Qwen): CL100K in other words, with digits in threes or one
# by one. As fast as ours on any text, so they need no watching.
_SPELLED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN = frozenset({*PATTERNS.values(), *(f"{_SPELLED}{digits}{_REST}" for digits in (r"\p{N}{1,3}", r"\p{N}"))})

LONGEST = 10_000  # characters of a pattern
PATIENCE, PACE = 5.0, 5e-6  # seconds for any text, and for each character of it, some ten times what is ever needed

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_PIECE = re.compile(r"\\[pP]\{[^}]*\}|\\.|&&|--|\|\||~~|\}\+|\(\?[a-z]*[msx][a-z]*|.", re.DOTALL)
# Ends of lines or of the text? Possessive, or repeated? Which of the flags lets a dot match a line end?
_AMBIGUOUS = re.compile(r"\$|\^|\}\+|\(\?[a-z]+")
_CLASS = re.compile(r"\\([pP])\{(\w+)\}|\\([sS])")
_SAME_IN_RE = frozenset("rntfv\\\"'/.|?*+()[]{}^$- ")  # escapes that mean the same everywhere


class Splitter:
    """One pattern; calling it cuts a text into words that, put together, are the text again."""

    def __init__(self, pattern: str) -> None:
        self.pattern = PATTERNS.get(pattern, pattern)
        if len(self.pattern) > LONGEST:
            raise InputError(
                f"the pre-split pattern has {len(self.pattern):,} characters; at most {LONGEST:,} are read"
            )
        # our own patterns leave no character out; what others match must be checked on every text
        self._ours = self.pattern in PATTERNS.values()
        self._ascii = _compile(self.pattern, 0x7F)

    def __call__(self, text: str) -> list[str]:
        # Small classes match faster, so the largest character of the text decides how much of Unicode they hold.
        if text.isascii():
            compiled = self._ascii
        else:
            compiled = _compile(self.pattern, 0x10FFFF if _ASTRAL.search(text) else 0xFFFF)
        if self._ours:
            return compiled.findall(text)
        if isinstance(compiled, re.Pattern):
            return _with_gaps(text, [match.span() for match in compiled.finditer(text)])
        patience = PATIENCE + PACE * len(text)
        try:
            return _with_gaps(text, [match.span() for match in compiled.finditer(text, timeout=patience)])
        except TimeoutError:
            raise InputError(
                f"the pre-split pattern {self.pattern!r} is not done with {len(text):,} characters after "
                f"{patience:.0f} seconds, as patterns are in which repeats hold repeats; write it differently"
            ) from None


def _with_gaps(text: str, spans: list[tuple[int, int]]) -> list[str]:
    """The matches, and between them what the pattern passed over, as words of its own: no text is ever lost."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    return [text[start:end] for start, end in pairwise(edges) if start < end]


@cache
def _compile(pattern: str, limit: int) -> "re.Pattern[str] | regex.Pattern[str]":
    """The pattern for texts without characters above `limit`: by `re` if it is known here, or by `regex`."""
    try:
        written_out = _write_out(pattern, limit)
        if written_out is None:
            return regex.compile(pattern, regex.V1)
        return re.compile(written_out) if pattern in KNOWN else regex.compile(written_out, regex.V0)
    except RecursionError:
        raise InputError(f"the pre-split pattern {pattern[:40]!r}… is nested too deeply") from None
    except (re.error, regex.error, OverflowError, MemoryError) as error:
        raise InputError(f"the pre-split pattern {pattern!r} is not a regular expression: {error}") from None


def python_pattern(pattern: str) -> str:
    """A known pattern for Python's own `re`, all of Unicode written out: what a script takes along that has no more."""
    written_out = _write_out(pattern, 0x10FFFF) if pattern in KNOWN else None
    if written_out is None:
        raise InputError(f"the pre-split pattern {pattern!r} is not one that is known to leave no text out")
    return written_out


def is_portable(pattern: str) -> bool:
    """Whether every engine cuts alike: the pattern uses only what is written out here, and nothing of `regex` alone."""
    return _write_out(pattern, 0x7F) is not None


def _write_out(pattern: str, limit: int) -> str | None:
    """The pattern with its Unicode classes as character ranges, or None if it uses what only `regex` knows.

    `\\s` is written out too: Python's has four control characters more than Unicode's.
    """
    pieces, inside, known = [], False, True
    for piece in _PIECE.findall(pattern):
        if piece[0] == "\\" and (name := _CLASS.fullmatch(piece)) and (name[2] or "space") in CLASSES:
            members = ranges(name[2] or "space")
            written = _as_set(complement(members) if piece[1] in "PS" else members, limit)
            piece = written if inside else f"[{written}]"
        elif piece[0] == "\\":
            known &= piece[1] in _SAME_IN_RE
        elif piece == "[":
            known &= not inside  # a set inside a set
            inside = True
        elif piece == "]":
            inside = False
        elif not inside and _AMBIGUOUS.fullmatch(piece):
            raise InputError(
                f"the pre-split pattern {pattern!r} has {piece!r}, which tokenizers, tiktoken and Python each read in "
                f"their own way; write it differently (for OpenAI's vocabularies, give a name: {', '.join(PATTERNS)})"
            )
        elif piece in ("&&", "--", "||", "~~"):
            known = False  # set operations
        pieces.append(piece)
    return "".join(pieces) if known else None


def _as_set(members: Ranges, limit: int) -> str:
    """Ranges as they stand between the brackets of a set, without what lies above `limit`."""
    # a set must not be empty: where nothing is left, the first range stays and matches nothing in such a text
    kept = [(first, min(last, limit)) for first, last in members if first <= limit] or members[:1]
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in kept)
