"""Byte-pair encoding: learn merges, apply them, read and write the ecosystem's formats.

Read in this order: `split` (text into words), `learn` (words into merges), `merge` (merges applied to a word),
`bytepair` (the tokenizer made of them). Nothing here imports torch, and of the rest of clearhead only `errors`,
`reading` and `disk`.
"""

from clearhead.tokenizer.base import SPECIAL, StreamDecoder, Tokenizer
from clearhead.tokenizer.bytepair import BytePair
from clearhead.tokenizer.characters_and_integers import Characters, Integers
from clearhead.tokenizer.corpus import read_texts
from clearhead.tokenizer.formats import load
from clearhead.tokenizer.learn import train

__all__ = [
    "SPECIAL",
    "BytePair",
    "Characters",
    "Integers",
    "StreamDecoder",
    "Tokenizer",
    "load",
    "read_texts",
    "train",
]
