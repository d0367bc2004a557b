"""llama2.c's `tokenizer.bin`, written by hand."""

import struct
from pathlib import Path

import pytest

from clearhead.errors import InputError
from clearhead.tokenizer.pieces import read_llama2c

PIECES = [b"<unk>", b"\n<s>\n", b"\n</s>\n", b" ", b"a", b"b", b" a", b""]


def entry(score: float, piece: bytes) -> bytes:
    return struct.pack("<fi", score, len(piece)) + piece


def written(pieces: list[bytes]) -> bytes:
    return struct.pack("<i", max(map(len, pieces))) + b"".join(entry(i / 8, piece) for i, piece in enumerate(pieces))


def test_a_vocabulary_is_read_to_its_last_byte(tmp_path: Path) -> None:
    """Which may be a length: the last piece may be empty."""
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(written(PIECES))
    tokenizer = read_llama2c(path, len(PIECES))
    assert tokenizer.pieces == [b"<unk>", b"<s>", b"</s>", *PIECES[3:]]
    assert tokenizer.scores == [i / 8 for i in range(len(PIECES))]
    assert tokenizer.encode("ab") == [6, 5]
    assert tokenizer.special == {"<unk>": 0, "<s>": 1, "</s>": 2}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (written(PIECES)[:-1], "it ends after 7 of 8 pieces"),
        (written(PIECES[:5]), "it ends after 5 of 8 pieces"),
        (written(PIECES) + b"x", "1 bytes follow the 8 pieces"),
        (written(PIECES[:7]) + struct.pack("<fi", 0.0, 1), "piece 7 has the length 1"),
        (written(PIECES[:7]) + struct.pack("<fi", 0.0, -1), "piece 7 has the length -1"),
    ],
)
def test_what_is_no_vocabulary_of_that_size_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"tokenizer\.bin: .*{said}"):
        read_llama2c(path, len(PIECES))
