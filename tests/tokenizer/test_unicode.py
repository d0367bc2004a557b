"""The tables are those of the Rust libraries behind tiktoken and tokenizers, code point by code point."""

from itertools import pairwise

import pytest
import tiktoken
from tokenizers import Regex, pre_tokenizers

from clearhead.tokenizer.unicode import CLASSES, complement, ranges

# Planes 4 to 13 and 15 on hold no letter, mark or number in any version yet, so a sample of them is enough.
CODES = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000), *range(0x40000, 0x110000, 97)]
EVERY = "".join(map(chr, sorted(CODES)))


def members(name: str) -> set[str]:
    return {chr(code) for first, last in ranges(name) for code in range(first, last + 1)}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_those_of_tiktoken_and_tokenizers(name: str) -> None:
    pattern = r"\s" if name == "space" else rf"\p{{{name}}}"
    every_byte = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("one class", pat_str=pattern, mergeable_ranks=every_byte, special_tokens={})
    # tiktoken drops what the pattern does not match, so what comes back is the class
    assert set(encoding.decode(encoding.encode_ordinary(EVERY))) == members(name)
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    assert {piece for piece, _ in split.pre_tokenize_str(EVERY)} == members(name)


@pytest.mark.parametrize("name", CLASSES)
def test_complement_is_everything_else(name: str) -> None:
    ours, others = ranges(name), complement(ranges(name))
    covered = sorted(ours + others)
    assert covered[0][0] == 0
    assert covered[-1][1] == 0x10FFFF
    assert all(before[1] + 1 == after[0] for before, after in pairwise(covered))
    assert complement(others) == ours


def test_nothing_lies_between_neighbours() -> None:
    assert complement([(0, 9), (10, 20)]) == [(21, 0x10FFFF)]
    assert complement([(0, 0x10FFFF)]) == []
