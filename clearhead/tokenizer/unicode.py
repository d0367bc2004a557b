"""Which characters are letters, marks, numbers and white space: the tables of Unicode 16, whatever Python runs this.

A pre-split pattern says `\\p{L}`, and what that means depends on a version of Unicode: Python 3.11 carries version
14, the `regex` module a much newer one, and the Rust libraries that `tokenizers` and `tiktoken` are built on
carry 16. Ids must not change with the interpreter, so the version is fixed here at the one the peers agree on:
the running Python's own table, plus what versions 15 to 16 added, minus what came later.
"""

import unicodedata
from functools import cache
from itertools import groupby

Ranges = list[tuple[int, int]]  # first and last code point, both included

# Code points that Python 3.11 (Unicode 14) does not know as letters, marks or numbers, and Unicode 16 does.
_ADDED = {
    "Lu": "1C89 A7CB-A7CC A7DA A7DC 10D50-10D65",
    "Ll": "295 1C8A A7CD A7DB 10D70-10D85 1DF25-1DF2A",  # 295 is older, but Unicode 17 calls it Lo
    "Lm": "10D4E 10D6F 16D40-16D42 16D6B-16D6C 1E030-1E06D 1E4EB",
    "Lo": """
        105C0-105F3 10D4A-10D4D 10D4F 10EC2-10EC4 1123F-11240 11380-11389 1138B 1138E 11390-113B5 113B7 113D1
        113D3 11BC0-11BE0 11F02 11F04-11F10 11F12-11F33 1342F 13441-13446 13460-143FA 16100-1611D 16D43-16D6A
        18CFF 1B132 1B155 1E4D0-1E4EA 1E5D0-1E5ED 1E5F0 2B739 2EBF0-2EE5D 31350-323AF
    """,
    "Mn": """
        897 CF3 ECE 10D69-10D6D 10EFC-10EFF 11241 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113D0 113D2
        113E1-113E2 11F00-11F01 11F03 11F34-11F3A 11F3E-11F42 11F5A 13440 13447-13455 1611E-1612F 1E08F
        1E4EC-1E4EF 1E5EE-1E5EF
    """,
    "Nd": """
        10D40-10D49 116D0-116E3 11BF0-11BF9 11F50-11F59 16130-16139 16D70-16D79 1CCF0-1CCF9 1D2C0-1D2D3
        1E4F0-1E4F9 1E5F1-1E5FA
    """,
}
# Letters, marks and numbers of later versions: a newer Python knows them, a tokenizer must not.
_LATER = """
    558 58B-58C 5C8-5C9 88F B53-B54 C5C CDC 1ACF-1AF0 208F 209D-209F A7CE-A7CF A7D2 A7D4 A7DD A7E2 A7F1 AB6C-AB6D
    107BB-107BF 10940-10959 10EC5-10EC7 10ECB-10ECF 10ED9-10EEE 10EF0-10EFB 11B0A 11B60-11B67 11DB0-11DDB
    11DE0-11DE9 11DF0-11DF1 1246F 12475-1247F 12550-12686 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6 187F8-187FF
    18CD6-18CDA 18D09-18D20 18D80-18DF2 18E00-19191 191A0-191D2 1B123-1B128 1B168 1D127-1D128 1D250-1D252
    1D25B-1D25C 1D25F 1D280-1D281 1D6A6 1DF1F-1DF24 1DF2B-1DF81 1DF90-1DF96 1DFCD-1DFFF 1E6C0-1E6DE 1E6E0-1E6F5
    1E6FE-1E6FF 2B73A-2B73F 2B81E 2CEA2-2CEAD 323B0-33479 3D000-3FC3F
"""
# Unicode's White_Space. Python's str.isspace and `\s` also take 1C-1F, which no peer does.
_SPACE = "9-D 20 85 A0 1680 2000-200A 2028-2029 202F 205F 3000"

# The classes a pattern may name. (`Lt`, `Lu`… are parts of `L`, as in every regular-expression dialect.)
CLASSES = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "space")


def _parse(listing: str) -> Ranges:
    pairs = (entry.partition("-") for entry in listing.split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in pairs]


@cache
def _runs() -> list[tuple[str, int, int]]:
    """Planes 0 to 3 as (general category, first, last), and the marks of plane 14, unchanged since Unicode 4."""
    categories = list(map(unicodedata.category, map(chr, range(0x40000))))
    for first, last in _parse(_LATER):
        categories[first : last + 1] = ["Cn"] * (last + 1 - first)
    for category, listing in _ADDED.items():
        for first, last in _parse(listing):
            categories[first : last + 1] = [category] * (last + 1 - first)
    runs, start = [], 0
    for category, members in groupby(categories):
        end = start + len(list(members))
        runs.append((category, start, end - 1))
        start = end
    return [*runs, ("Mn", 0xE0100, 0xE01EF)]


@cache
def ranges(name: str) -> Ranges:
    """The code points of one of `CLASSES`, as ascending ranges."""
    if name == "space":
        return _parse(_SPACE)
    found: Ranges = []
    for category, first, last in _runs():
        if category.startswith(name):
            if found and found[-1][1] == first - 1:
                found[-1] = (found[-1][0], last)
            else:
                found.append((first, last))
    return found


def complement(given: Ranges) -> Ranges:
    """Every code point outside the given ascending ranges."""
    edges = [-1, *(edge for pair in given for edge in pair), 0x110000]
    return [(low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True) if low + 1 <= high - 1]
