"""stories260K: a real Llama with grouped heads and rotary positions, and the text it is known to tell."""

import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.interop import llama2c
from clearhead.model import DecoderOnly

# what llama2.c's own tests expect of this model at temperature 0
STORY = """ Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she \
saw a big, red ball. She wanted to play with it, but it was too high.
Lily's mom said, "Lily, let's go to the park." Lily was sad and didn't know what to do. She said, "I want to play \
with your ball, but I can't find it."
Lily was sad and didn't know what to do. She said, "I'm sorry, Lily. I didn't know what to do."
Lily didn't want to help her mom, so"""


def pieces(path: Path) -> list[bytes]:
    """The vocabulary of a llama2.c tokenizer: a length, then a score, a size and the bytes of each piece."""
    content, at, result = path.read_bytes(), 4, []
    while at < len(content):
        _, size = struct.unpack_from("<fi", content, at)
        result.append(content[at + 8 : at + 8 + size])
        at += 8 + size
    return result


@pytest.fixture(scope="module")
def storyteller(data: Path) -> Any:
    return llama2c.read(data / "stories260K" / "stories260K.bin").eval()


def test_tells_the_known_story(storyteller: Any, data: Path) -> None:
    vocabulary = pieces(data / "stories260K" / "tok512.bin")
    start = torch.tensor([[1, *(vocabulary.index(word) for word in (b" Once", b" upon", b" a", b" time"))]])

    def tell(cached: bool) -> Tensor:
        told, cache = start, clearhead.KVCache(storyteller.config, 1) if cached else None
        with torch.no_grad():
            while told.size(1) < 200:
                new = told if cache is None else told[:, cache.length :]
                told = torch.cat((told, storyteller(new, cache=cache)[:, -1:].argmax(-1)), 1)
        return told

    told = tell(cached=True)
    text = b"".join(vocabulary[i] for i in told[0, 1:].tolist()).replace(b"<0x0A>", b"\n").decode()
    assert text == STORY
    assert torch.equal(told, tell(cached=False))


def test_refuses_other_files(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    content = (data / "stories260K" / "stories260K.bin").read_bytes()
    for written, message in (
        (b"short", "5 bytes are too few for the header"),
        (content[:-1], "asks for 1056512 bytes after it, found 1056511"),
        (content + content, "asks for 1056512 bytes after it, found 2113052"),
        (b"# A text file, long enough for a header.", "not a llama2.c file|asks for"),
        (struct.pack("<7i", 64, 172, 5, 7, 4, 512, 512) + content[28:], "heads must divide d_model"),
        (struct.pack("<7i", 64, 172, 5, 8, 4, -512, 512) + content[28:], "asks for"),
    ):
        path.write_bytes(written)
        with pytest.raises(clearhead.InputError, match=message) as error:
            llama2c.read(path)
        assert "model.bin" in str(error.value)


def test_reads_an_untied_head(storyteller: Any, data: Path, tmp_path: Path) -> None:
    content = (data / "stories260K" / "stories260K.bin").read_bytes()
    head = torch.full((512, 64), 0.5).numpy().tobytes()
    path = tmp_path / "untied.bin"
    path.write_bytes(struct.pack("<7i", 64, 172, 5, 8, 4, -512, 512) + content[28:] + head)
    model = llama2c.read(path)
    assert isinstance(model, DecoderOnly)
    assert model.decoder.norm is not None
    assert model.output.weight is not None
    assert torch.equal(model.output.weight, torch.full((512, 64), 0.5))
    assert torch.equal(model.decoder.norm.weight, storyteller.decoder.norm.weight)
